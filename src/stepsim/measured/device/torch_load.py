"""A kernel that takes so many blocks and bytes a second of a GPU until it is told to stop.

It stands for a communication: every block holds an SM, for it takes all of the shared memory, and
copies its part of a buffer at a pace. Compiled by torch, on GPUs of NVIDIA.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any

from stepsim.base.errors import CalibrationError
from stepsim.measured.kernels_beside import SyntheticLoad

_THREADS = 512
_BUFFER_BYTES = 512 << 20  # more than any cache of a GPU
_PIECE_BYTES = 64 << 10  # of a block, between two looks at the clock
_LONGEST_NS = 20_000_000_000
_START_S = 10.0
_TRIAL_S = 0.05
_FLAGS = 2
_ELEMENT_BYTES = 16
_RESERVED_BYTES = 1024
_SOURCE = """
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

extern "C" __global__ void NAME(
    const float4* from, float4* to, long long* pieces, volatile int* flags,
    const long long* numbers) {
    extern __shared__ char held[];
    long long elements = numbers[0], piece = numbers[1];
    long long piece_ns = numbers[2], longest_ns = numbers[3];
    long long own = elements / gridDim.x, at = 0, done = 0;
    from += own * blockIdx.x;
    to += own * blockIdx.x;
    unsigned long long begin = now();
    if (threadIdx.x == 0) { held[0] = 0; flags[1] = 1; }
    while (true) {
        __shared__ int stop;
        if (threadIdx.x == 0) stop = flags[0] || now() - begin > longest_ns;
        __syncthreads();
        if (stop) break;
        if (piece_ns > 0) {
            if (at + piece > own) at = 0;
            for (long long i = at + threadIdx.x; i < at + piece; i += blockDim.x) to[i] = from[i];
            at += piece;
            done += 1;
            while (now() - begin < done * piece_ns) {}
        } else {
            __nanosleep(500);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) pieces[blockIdx.x] = done;
}
"""


class SyntheticStream:
    """Runs loads on a stream of its own; `torch` is the library, with a GPU."""

    def __init__(self, torch: Any) -> None:
        compiled = getattr(torch.cuda, "_compile_kernel", None)
        if compiled is None or torch.version.hip:
            raise _too_old(torch)
        self._torch = torch
        self._compile = compiled
        self._stream = torch.cuda.Stream()
        self._kept: Any = None
        self._buffers = [
            torch.empty(_BUFFER_BYTES // 4, dtype=torch.float32, device="cuda") for _ in range(2)
        ]

    def tried(self, load: SyntheticLoad) -> SyntheticLoad:
        """The load with the bytes/s that it reaches alone, where these are fewer than asked."""
        if not load.bytes_per_s:
            return load
        with self.running(load) as pieces:
            begin = perf_counter()
            sleep(_TRIAL_S)
        moved = 2 * _PIECE_BYTES * int(pieces.sum().item())
        reached = moved / (perf_counter() - begin)
        return SyntheticLoad(
            blocks=load.blocks, bytes_per_s=min(load.bytes_per_s, round(reached, -9))
        )

    @contextmanager
    def running(self, load: SyntheticLoad) -> Iterator[Any]:
        """Run a load meanwhile; yields how many pieces its blocks have copied, once it has ended.

        Raises CalibrationError where it does not start.
        """
        torch = self._torch
        flags = torch.zeros(_FLAGS, dtype=torch.int32).pin_memory()
        pieces = torch.zeros(load.blocks, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        self._launch(load, pieces, flags)
        begin = perf_counter()
        while not int(flags[1]):
            if perf_counter() - begin > _START_S:
                flags[0] = 1
                raise CalibrationError(f"overlap: {load.name} does not start")
        try:
            yield pieces
        finally:
            flags[0] = 1
            self._stream.synchronize()

    def _launch(self, load: SyntheticLoad, pieces: Any, flags: Any) -> None:
        torch = self._torch
        shared = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
        kernel = self._compile(_SOURCE.replace("NAME", load.name), load.name)
        if not hasattr(kernel, "set_shared_memory_config"):
            raise _too_old(torch)
        held = shared - _RESERVED_BYTES
        kernel.set_shared_memory_config(held)
        per_block = load.bytes_per_s / load.blocks
        piece_ns = round(2 * _PIECE_BYTES / per_block * 1e9) if per_block else 0
        elements = (_BUFFER_BYTES // _ELEMENT_BYTES, _PIECE_BYTES // _ELEMENT_BYTES)
        # torch passes whole numbers in 32 bits, so that they are in a tensor
        numbers = torch.tensor([*elements, piece_ns, _LONGEST_NS], device="cuda")
        torch.cuda.synchronize()
        kernel(
            grid=(load.blocks, 1, 1),
            block=(_THREADS, 1, 1),
            args=[*self._buffers, pieces, flags, numbers],
            shared_mem=held,
            stream=self._stream,
        )
        self._kept = kernel, numbers


def _too_old(torch: Any) -> CalibrationError:
    return CalibrationError(
        f"overlap: torch {torch.__version__} compiles no kernels with all of the shared memory: "
        "expected 2.10 or later on a GPU of NVIDIA"
    )
