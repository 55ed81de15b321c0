"""Kernels timed with torch: on a GPU by events of its queue, on the CPU by the clock.

Nothing else imports torch.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from stepsim.base.errors import CalibrationError
from stepsim.measured.device.kernels import (
    AttentionCall,
    DeviceFacts,
    KernelTimes,
    LayerCall,
    LayerPasses,
    MovingCall,
    MovingKind,
    ProductCall,
)
from stepsim.measured.device.torch_load import SyntheticStream
from stepsim.measured.kernels_beside import SyntheticLoad
from stepsim.workload.model.plan import Precision
from stepsim.workload.rows import Phase

_WARM = 3
_CACHE_BYTES = 256 << 20  # more than any cache of a GPU: each run finds its operands in memory
_QUEUED = 200
_PRECISIONS = (Precision.BF16, Precision.FP16, Precision.FP8)

_Run = Callable[[], object]


def make_timer(*, on_gpu: bool, repeat: int) -> "TorchTimer":
    """The timer of the GPU, or of the CPU; raises CalibrationError where torch has none."""
    try:
        import torch
    except ImportError as error:
        raise CalibrationError(
            f"measure needs torch (pip install 'stepsim[gpu]'): {error}"
        ) from None
    if on_gpu and not torch.cuda.is_available():
        version = torch.__version__
        raise CalibrationError(f"torch {version} sees no GPU: --without-gpu tries the command")
    return TorchTimer(torch, repeat, on_gpu=on_gpu)


class TorchTimer:
    """A KernelTimer on one device of torch; each kernel runs `repeat` times after a warm-up."""

    def __init__(self, torch: Any, repeat: int, *, on_gpu: bool) -> None:
        self._torch = torch
        self._repeat = repeat
        self._on_gpu = on_gpu
        self._place = "cuda" if on_gpu else "cpu"
        self._flush: Any = None

    @property
    def facts(self) -> DeviceFacts:
        """Name, memory and versions."""
        torch = self._torch
        if not self._on_gpu:
            name = platform.processor() or platform.machine()
            return DeviceFacts(
                name=f"CPU {name}",
                memory_bytes=_memory_of_host(),
                reserved_bytes=0,
                versions=(f"torch {torch.__version__}", f"{torch.get_num_threads()} threads"),
            )
        known = torch.cuda.get_device_properties(0)
        free, whole = torch.cuda.mem_get_info()
        toolkit = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        cudnn = f"cuDNN {torch.backends.cudnn.version()}"
        return DeviceFacts(
            name=str(known.name),
            memory_bytes=int(known.total_memory),
            reserved_bytes=max(whole - free - torch.cuda.memory_reserved(), 0),
            versions=(f"torch {torch.__version__}", toolkit, cudnn),
            processors=int(known.multi_processor_count),
        )

    def product(self, call: ProductCall) -> KernelTimes:
        """Times of a product; raises CalibrationError for a precision that torch lacks here."""
        with self._named(call.label):
            return self._alone(self._multiply(call))

    def attention(self, call: AttentionCall) -> KernelTimes:
        """Times of torch's fused attention, of one pass."""
        with self._named(call.label):
            return self._alone(self._attend(call))

    def moving(self, call: MovingCall) -> KernelTimes:
        """Times of a kernel that only moves bytes."""
        with self._named(call.label):
            return self._alone(self._move(call))

    def smallest(self) -> KernelTimes:
        """Times of adding to a few elements, mean of many that one CUDA graph launches."""
        with self._named("smallest kernel"):
            run = self._few_elements()
            if self._on_gpu:
                graph = self._torch.cuda.CUDAGraph()
                with self._torch.cuda.graph(graph):
                    run()
                run = graph.replay
            return _each_of_many(self._alone(run))

    def launch(self) -> KernelTimes | None:
        """What the host takes to launch one such kernel; None on a CPU."""
        return _each_of_many(self._launches(self._few_elements())) if self._on_gpu else None

    def _few_elements(self) -> _Run:
        few = self._random(32)

        def many() -> None:
            for _ in range(_QUEUED):
                few.add_(1.0)

        return many

    def sustained(self, call: ProductCall, seconds: float) -> KernelTimes:
        """Times of a product that runs without a pause for so long, the first half left out."""
        with self._named(call.label):
            run = self._multiply(call)
            batch = max(round(0.05 / self._alone(run).median), 1)
            times: list[float] = []
            end = perf_counter() + seconds
            while perf_counter() < end or len(times) < 2:
                times.append(self._clocked(lambda: [run() for _ in range(batch)]) / batch)
        return KernelTimes(seconds=tuple(times[len(times) // 2 :]))

    def overlap(
        self,
        calls: Sequence[ProductCall | AttentionCall | MovingCall],
        loads: Sequence[SyntheticLoad],
        trace: Path,
    ) -> None:
        """Trace of kernels alone and beside each load; raises CalibrationError without a GPU."""
        if not self._on_gpu:
            raise CalibrationError("overlap: a CPU has no multiprocessors: expected a GPU")
        with self._named("overlap"):
            self._overlap([self._prepared(call) for call in calls], loads, trace)

    def _prepared(self, call: ProductCall | AttentionCall | MovingCall) -> _Run:
        if isinstance(call, ProductCall):
            return self._multiply(call)
        return self._attend(call) if isinstance(call, AttentionCall) else self._move(call)

    def _overlap(self, runs: Sequence[_Run], loads: Sequence[SyntheticLoad], trace: Path) -> None:
        stream = SyntheticStream(self._torch)
        reached = [stream.tried(load) for load in loads]

        def rounds() -> None:
            for _ in range(_WARM + self._repeat):
                for run in runs:
                    run()
            self._torch.cuda.current_stream().synchronize()

        def every() -> None:
            rounds()
            for load in reached:
                with stream.running(load):
                    rounds()

        rounds()
        self._trace(every, trace)

    def layer(self, call: LayerCall, trace: Path | None) -> LayerPasses:
        """Times and memory of a layer in plain torch; its trace goes to a file."""
        with self._named("layer"):
            return self._layer(call, trace)

    def _multiply(self, call: ProductCall) -> _Run:
        torch, t, k, n = self._torch, call.tokens, call.inner, call.outer
        if call.precision not in _PRECISIONS:
            known = ", ".join(_PRECISIONS)
            raise CalibrationError(f"torch has no products in {call.precision}: expected {known}")
        if call.precision is Precision.FP8:
            return self._multiply_fp8(call)
        kind = torch.float16 if call.precision is Precision.FP16 else torch.bfloat16
        weight, inputs, gradient = (self._random(*s, kind=kind) for s in ((n, k), (t, k), (t, n)))
        linear = torch.nn.functional.linear
        runs: dict[Phase, _Run] = {
            Phase.FORWARD: lambda: linear(inputs, weight),
            Phase.INPUT_GRAD: lambda: gradient @ weight,
            Phase.WEIGHT_GRAD: lambda: gradient.t() @ inputs,
        }
        return runs[call.phase]

    def _multiply_fp8(self, call: ProductCall) -> _Run:
        """Rows by columns in 8 bits, as all three layouts are after their casts."""
        torch, (m, n, k) = self._torch, call.shape
        left, right = (self._random(*s).to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
        one = torch.ones((), device=self._place)
        return lambda: torch._scaled_mm(
            left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    def _attend(self, call: AttentionCall) -> _Run:
        torch = self._torch
        shapes = (call.heads, call.kv_heads, call.kv_heads)
        tensors = [
            self._random(call.batch, heads, call.sequence, call.head_dim, learns=call.backward)
            for heads in shapes
        ]

        def forward() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(
                *tensors, is_causal=True, enable_gqa=call.heads != call.kv_heads
            )

        if not call.backward:
            return forward
        return self._backward(forward(), tensors)

    def _backward(self, result: Any, learned: list[Any]) -> _Run:
        """The backward of a result, which can run again."""
        back = self._torch.randn_like(result)
        return lambda: self._torch.autograd.grad(result, learned, back, retain_graph=True)

    def _move(self, call: MovingCall) -> _Run:
        torch = self._torch
        one, other = (self._random(call.rows, call.width) for _ in range(2))
        result = torch.empty_like(one)
        scale = self._random(call.width)
        norm, silu = torch.nn.functional.rms_norm, torch.nn.functional.silu
        runs: dict[MovingKind, _Run] = {
            MovingKind.COPY: lambda: result.copy_(one),
            MovingKind.RESIDUAL: lambda: torch.add(one, other, out=result),
            MovingKind.NORM: lambda: norm(one, (call.width,), scale),
            MovingKind.GATE: lambda: silu(one) * other,
        }
        return runs[call.kind]

    def _layer(self, call: LayerCall, trace: Path | None) -> LayerPasses:
        forward, weights = self._layer_of(call)
        hidden = self._random(call.batch, call.sequence, call.hidden, learns=True)
        learned = [hidden, *weights]
        kept = self._kept(lambda: forward(hidden), weights)
        behind = self._alone(self._backward(forward(hidden), learned))

        back = self._torch.randn_like(hidden)

        def both() -> None:
            self._torch.autograd.grad(forward(hidden), learned, back)

        found = LayerPasses(
            forward=self._alone(lambda: forward(hidden)),
            backward=behind,
            host=self._launches(both) if self._on_gpu else None,
            kept_bytes=kept,
            peak_bytes=self._peak(both),
        )
        if trace:
            self._trace(both, trace)
        return found

    def _layer_of(self, call: LayerCall) -> tuple[Callable[[Any], Any], list[Any]]:
        """A layer as a function of its input, and its weights."""
        torch = self._torch
        functions = torch.nn.functional
        h, d = call.hidden, call.head_dim
        queries, keys = call.heads * d, call.kv_heads * d
        inputs = (2 if call.gated else 1) * call.width
        sides = ((queries + 2 * keys, h), (h, queries), (inputs, h), (h, call.width))
        qkv, out, up, down = weights = [
            self._random(*each, learns=True, scale=each[1] ** -0.5) for each in sides
        ]
        norms = [self._random(h, learns=True) for _ in range(2)]

        def heads(tensor: Any) -> Any:
            return tensor.view(call.batch, call.sequence, -1, d).transpose(1, 2)

        def forward(x: Any) -> Any:
            joined = functions.linear(functions.rms_norm(x, (h,), norms[0]), qkv)
            q, k, v = map(heads, joined.split((queries, keys, keys), dim=-1))
            seen = functions.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=queries != keys
            )
            x = x + functions.linear(seen.transpose(1, 2).flatten(2), out)
            wide = functions.linear(functions.rms_norm(x, (h,), norms[1]), up)
            if call.gated:
                gate, wide = wide.chunk(2, dim=-1)
                wide = functions.silu(gate) * wide
            else:
                wide = functions.gelu(wide)
            return x + functions.linear(wide, down)

        return forward, [*weights, *norms]

    def _kept(self, run: _Run, weights: list[Any]) -> int:
        """Bytes that a forward keeps for its backward, each storage once, without weights."""
        own = {each.untyped_storage().data_ptr() for each in weights}
        held: dict[int, int] = {}

        def keep(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                held[storage.data_ptr()] = storage.nbytes()
            return tensor

        with self._torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = run()
        del result
        return sum(held.values())

    def _launches(self, run: _Run) -> KernelTimes:
        """What the host takes to launch, with nothing before it in the queue."""
        times = []
        for _ in range(_WARM + self._repeat):
            self._wait()
            start = perf_counter()
            run()
            times.append(perf_counter() - start)
        self._wait()
        return KernelTimes(seconds=tuple(times[_WARM:]))

    def _peak(self, run: _Run) -> int | None:
        """Most bytes allocated during a run, beside what was there before; None on a CPU."""
        if not self._on_gpu:
            return None
        cuda = self._torch.cuda
        self._wait()
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        run()
        self._wait()
        return int(cuda.max_memory_allocated() - before)

    def _trace(self, run: _Run, path: Path) -> None:
        profiler = self._torch.profiler
        kinds = [profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            kinds.append(profiler.ProfilerActivity.CUDA)
        with profiler.profile(activities=kinds, record_shapes=True) as recorded:
            run()
            self._wait()
        recorded.export_chrome_trace(str(path))

    def _random(
        self, *sides: int, kind: Any = None, learns: bool = False, scale: float = 1.0
    ) -> Any:
        kind = kind or self._torch.bfloat16
        made = self._torch.randn(sides, device=self._place, dtype=kind) * scale
        return made.requires_grad_(learns)

    def _alone(self, run: _Run) -> KernelTimes:
        for _ in range(_WARM):
            run()
        self._wait()
        if not self._on_gpu:
            return KernelTimes(seconds=tuple(self._clocked(run) for _ in range(self._repeat)))
        return KernelTimes(seconds=tuple(self._by_events(run)))

    def _by_events(self, run: _Run) -> Iterator[float]:
        """Device time of each run; a buffer is filled before it, which empties the cache.

        That also keeps the device busy while the host launches, so that no gap is timed.
        """
        torch = self._torch
        if self._flush is None:
            self._flush = torch.empty(_CACHE_BYTES, dtype=torch.int8, device=self._place)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * self._repeat)]
        for start, end in zip(marks[::2], marks[1::2], strict=True):
            self._flush.zero_()
            start.record()
            run()
            end.record()
        self._wait()
        for start, end in zip(marks[::2], marks[1::2], strict=True):
            yield start.elapsed_time(end) / 1e3

    def _clocked(self, run: _Run) -> float:
        start = perf_counter()
        run()
        self._wait()
        return perf_counter() - start

    def _wait(self) -> None:
        if self._on_gpu:
            self._torch.cuda.synchronize()

    @contextmanager
    def _named(self, label: str) -> Iterator[None]:
        """Say which kernel failed, in one line."""
        try:
            yield
        except (RuntimeError, ValueError, NotImplementedError) as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CalibrationError(f"{label}: {why}") from None


def _each_of_many(times: KernelTimes) -> KernelTimes:
    return KernelTimes(seconds=tuple(each / _QUEUED for each in times.seconds))


def _memory_of_host() -> int:
    from os import sysconf

    return int(sysconf("SC_PAGE_SIZE")) * int(sysconf("SC_PHYS_PAGES"))
