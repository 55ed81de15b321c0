"""How far the slowdown of kernels beside communication is from what was measured.

Usage: python benchmarks/accuracy_overlap.py FOLDER/reference/overlap
           [--steps | --left-out]
Prints the tables of docs/overlap.md; with `--steps` that of whole steps, which takes a minute, with
`--left-out` errors of each family by constants that were set without it.
`from_traces.csv` holds kernels of public traces that ran alone and beside a communication kernel.
Errors are |predicted / measured beside - 1| of clean rows of 10 us and more. A trace says neither
how many bytes a communication moved nor how long it waited: rings are taken to move what their
channels can, point-to-point kernels to wait, DeepEP to move what its authors measured. Published
kernels are those of threads, as in `kernels_published.csv`.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from kernels_beside_comms import LEAST_US, BesideRow, comm_demand, kernel_demand, read_beside_rows
from sizes import arguments

import stepsim
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.accelerators import device_names, read_device
from stepsim.files.reading import csv_rows
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.overlap import (
    LAW,
    MEMORY_DRAW,
    CommDemand,
    CommEngine,
    GpuLimits,
    KernelDemand,
    KernelKind,
    OverlapLaw,
    delay_s,
    memory_stretch,
    slowdown,
)


class Row(NamedTuple):
    """A clean row of the table, by the family of traces and the file that it is from."""

    family: str
    file: str
    row: BesideRow
    kernel: KernelDemand
    comm: CommDemand
    gpu: GpuLimits

    @property
    def comm_kind(self) -> str:
        """What the communication does."""
        return self.row.comm_kind

    @property
    def measured(self) -> float:
        """How many times as long it took beside the communication."""
        return self.row.ratio

    @property
    def late_us(self) -> float:
        """By how much it took longer beside the communication, in us."""
        return self.row.beside_us - self.row.alone_us


def beside_s(
    alone_s: float,
    kernel: KernelDemand,
    beside: Sequence[CommDemand],
    gpu: GpuLimits,
    numbers: OverlapLaw = LAW,
) -> float:
    """Seconds of a kernel of `alone_s` seconds that runs beside communications all the time."""
    return alone_s * slowdown(kernel, beside, gpu, numbers) + delay_s(beside, gpu, numbers)


def law(row: Row) -> float:
    """Times as long by the law of `stepsim.workload.overlap`."""
    return by(LAW)(row)


def by(numbers: OverlapLaw) -> Callable[[Row], float]:
    """The law with other numbers."""

    def ratio(row: Row) -> float:
        alone_s = row.row.alone_us * 1e-6
        return beside_s(alone_s, row.kernel, [row.comm], row.gpu, numbers) / alone_s

    return ratio


def nothing(_: Row) -> float:
    """As long as alone."""
    return 1.0


def plain_shares(row: Row) -> float:
    """Times as long where every kernel loses the share of the SMs that communication holds."""
    return row.gpu.sms / max(row.gpu.sms - row.row.comm_blocks, 1)


Predicted = Callable[[Row], float]
WAYS: dict[str, Predicted] = {
    "law": law,
    "no slowdown": nothing,
    "shares of SMs": plain_shares,
}


def read_rows(path: Path) -> list[Row]:
    """The rows of a table that errors are of: clean ones of 10 us and more."""
    return judged(clean_rows(path))


def gpu_called(name: str) -> Device:
    """The shipped device that a tool calls so, e.g. `NVIDIA H100 80GB HBM3`; raises PlanError.

    It is the one of that chip with most words of its name among the words of this one.
    """
    words = set(re.findall("[a-z0-9]+", name.lower()))
    known = {each: set(re.findall("[a-z0-9]+", each)) for each in device_names()}
    fits = [each for each in known if each.split("-")[0] in words and "pcie" not in words]
    if not fits:
        raise PlanError(f"GPU is {name!r}: expected one of {', '.join(known)}")
    return read_device(max(fits, key=lambda each: len(known[each] & words)))


def clean_rows(path: Path) -> list[Row]:
    """The clean rows of a table; those of GPUs whose SMs nobody knows are named on stderr."""
    _, told = csv_rows(path, path.read_text(), StepsimError)
    pairs = list(zip((text for _, text in told), read_beside_rows(path), strict=True))
    gpus, generations = {}, {}
    for name in sorted({row.gpu for _, row in pairs}):
        try:
            device = gpu_called(name)
            gpus[name], generations[name] = device.limits, device.generation
        except PlanError as error:
            print(f"left out: {error}", file=sys.stderr)
    return [
        Row(
            family=text["family"],
            file=text["file"],
            row=row,
            kernel=kernel_demand(row, gpus[row.gpu], generations[row.gpu]),
            comm=comm_demand(row, gpus[row.gpu]),
            gpu=gpus[row.gpu],
        )
        for text, row in pairs
        if row.gpu in gpus and row.is_clean
    ]


def judged(rows: Iterable[Row]) -> list[Row]:
    """Rows of 10 us and more: errors are theirs, shorter ones tell the delay."""
    return [row for row in rows if row.row.alone_us >= LEAST_US]


def error(rows: Iterable[Row], predicted: Predicted) -> float:
    """Mean of |predicted / measured - 1|."""
    return fmean(abs(predicted(row) / row.measured - 1) for row in rows)


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows by a key, in its order."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


def stream_sms(rows: Iterable[Row]) -> float:
    """Share of a streaming kernel's time that its SMs alone would take: the median of rows."""
    whole = by(replace(LAW, stream_sms=1.0))
    streams = [row for row in judged(rows) if row.kernel.kind is KernelKind.STREAM]
    lost = [row for row in streams if row.comm.sms and whole(row) > 1.0]
    return min(median(row.measured / whole(row) for row in lost), 1.0)


def queue_s(rows: Iterable[Row]) -> float:
    """Seconds of delay for each unit by which memory slows bytes: mean over GPUs of the medians."""
    rings = [row for row in rows if not row.comm.delay_ps and row.row.alone_us < LEAST_US]
    slow = [row for row in rings if stretch(row) > 1.0]
    groups = grouped(slow, lambda row: f"{row.row.gpu} {row.row.comm_blocks}")
    return fmean(
        median(row.late_us for row in own) * 1e-6 / (stretch(own[0]) - 1.0)
        for own in groups.values()
    )


def stretch(row: Row) -> float:
    """How much longer a stream of bytes takes beside a row's communication."""
    return memory_stretch(MEMORY_DRAW, row.comm.bytes_per_s, row.gpu)


def delay_us(rows: Iterable[Row]) -> float:
    """Delay of exchanges and messages: mean of the medians of groups of short kernels, in us."""
    short = [row for row in rows if row.comm.delay_ps and row.row.alone_us < LEAST_US]
    groups = grouped(short, lambda row: f"{row.file} {row.comm_kind} {row.row.comm_blocks}")
    return fmean(median(row.late_us for row in own) for own in groups.values())


def left_out(rows: Sequence[Row]) -> Iterator[str]:
    """Errors of each family where every constant that rows set is set on the other families."""
    yield "| family and beside | rows | law | constants set without it | no slowdown |"
    yield "|---|---:|---:|---:|---:|"
    found = {}
    for family in sorted({row.family for row in rows}):
        others = [row for row in rows if row.family != family]
        numbers = replace(LAW, stream_sms=stream_sms(others), queue_s=queue_s(others))
        late = delay_us(others)
        found[family] = numbers, late
        own = [row for row in judged(rows) if row.family == family]
        for kind, alike in grouped(own, lambda row: row.comm_kind).items():
            changed = [row._replace(comm=with_delay(row.comm, late)) for row in alike]
            errors = error(alike, law), error(changed, by(numbers)), error(alike, nothing)
            shown = " | ".join(f"{each:.1%}" for each in errors)
            yield f"| {family}, {kind} | {len(alike)} | {shown} |"
    yield ""
    yield "| set without | share of a streaming kernel that SMs bound | delay by memory | delay |"
    yield "|---|---:|---:|---:|"
    for family, (numbers, late) in found.items():
        queued = f"{numbers.queue_s * 1e6:.1f} us"
        yield f"| {family} | {numbers.stream_sms:.2f} | {queued} | {late:.2f} us |"


def with_delay(comm: CommDemand, late_us: float) -> CommDemand:
    """A communication with another delay, if it has one."""
    return replace(comm, delay_ps=round(late_us * 1e-6 * PS_PER_S)) if comm.delay_ps else comm


class Published(NamedTuple):
    """A published time or ratio beside the law's, and how far this may be off."""

    what: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def is_met(self) -> bool:
        """Whether the law's lies within what is asked of it."""
        return self.low <= self.predicted <= self.high


def published() -> list[Published]:
    """Kernels of threads; times of alone and beside are those of `kernels_published.csv`."""
    ampere, hopper = (read_device(name).limits for name in ("a100-80gb", "h100"))
    ring = CommEngine.RING.traits.moving(300e9)
    product, stream = KernelDemand(), KernelDemand(kind=KernelKind.STREAM)
    gemm = beside_s(1.18e-3, product, [ring], ampere) / 1.18e-3
    attention = beside_s(0.18e-3, product, [ring], ampere) / 0.18e-3
    elementwise = beside_s(0.02e-3, stream, [ring], ampere) / 0.02e-3
    wire = 24 * hopper.channel_bytes_per_s
    matmul = slowdown(product, [CommEngine.RING.traits.moving(wire)], hopper)
    return [
        _within("nccl1428, GEMM beside all-gather", 2.08 / 1.18, gemm, 0.15),
        _within("nccl1428, attention", 0.33 / 0.18, attention, 0.15),
        Published("nccl1428, elementwise (0.02 to 0.05 ms)", 2.5, elementwise, 1.8, 3.7),
        _within("torch179937, matmuls beside NCCL (1.3 to 1.4)", 1.35, matmul, 0.15),
        *_copy_engines(hopper, wire),
    ]


def _within(what: str, measured: float, predicted: float, share: float) -> Published:
    return Published(what, measured, predicted, measured * (1 - share), measured * (1 + share))


def _copy_engines(gpu: GpuLimits, wire: float) -> Iterator[Published]:
    """A product of 8192 x 8192 x 8192 beside an all-gather of 64 MiB of each of 8 GPUs, in ms.

    The product takes what stepsim says of it on H100; one after the other both take 2.96 ms, so
    that the rest is the all-gather's. Copy engines are taken to be as fast as that.
    """
    device = read_device("h100")
    flops, one = np.array([2 * 8192.0**3]), np.ones(1)
    rate = device.rate_of(Precision.BF16)
    gemm_s = float(rate.seconds(flops, one, device.sustained)[0])
    comm_s = 2.96e-3 - gemm_s
    for engine, measured in ((CommEngine.RING, 2.02), (CommEngine.COPY_ENGINE, 1.77)):
        factor = slowdown(KernelDemand(), [engine.traits.moving(wire)], gpu)
        slowed_s = gemm_s + min(comm_s, gemm_s * factor) * (1.0 - 1.0 / factor)
        predicted = max(slowed_s, comm_s) * 1e3
        yield _within(f"torch172714, {engine}, ms", measured, predicted, 0.07)


class StepPair(NamedTuple):
    """A step that was measured before and after a change, and the options of both."""

    what: str
    model: str
    network: str
    measured: float
    shared: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]

    def predicted(self, **options: Any) -> float:
        """Change of the step time that stepsim predicts with more options."""
        before, after = (
            stepsim.simulate(self.model, self.network, **self.shared, **own, **options)
            for own in (self.before, self.after)
        )
        return after.report.step_time_ps / before.report.step_time_ps - 1


_QWEN = {"npus": 16, "ep": 16, "tp": 1, "pp": 1, "microbatch_size": 1, "global_batch": 1024}
_OSS = {"npus": 64, "ep": 64, "tp": 1, "pp": 1, "microbatch_size": 4, "global_batch": 1280}
_BRIDGE = {"framework": "megatron-bridge", "sequence": 4096}
_COMBINED = {"schedule": "combined-1f1b"}
_LLAMA = {"npus": 8, "microbatch_size": 2, "global_batch": 16, "sequence": 4096}
STEPS = (
    StepPair(
        "mbridge_hybridep: EP overlap on",
        "qwen3-30b-a3b",
        "hgx-h100",
        20.992 / 24.7138 - 1,
        _QWEN | _BRIDGE | {"dispatch": "hybridep", "cuda_graph": True},
        {},
        _COMBINED,
    ),
    StepPair(
        "mbridge_alltoall: EP overlap on",
        "qwen3-30b-a3b",
        "hgx-h100",
        31.31 / 41.25 - 1,
        _QWEN | _BRIDGE | {"dispatch": "all_to_all"},
        {},
        _COMBINED,
    ),
    StepPair(
        "mbridge3561: all-to-all for HybridEP",
        "gpt-oss-120b",
        "gb200-nvl72",
        406.6 / 423.6 - 1,
        # its recipe of 067f987df: no CUDA graph, delayed weight gradients
        _OSS | _BRIDGE | _COMBINED | {"cuda_graph": False, "delay_wgrad": True},
        {"dispatch": "hybridep"},
        {"dispatch": "all_to_all"},
    ),
    StepPair(
        "torch179937: copy engines for SMs",
        "llama-3-8b",
        "hgx-h100",
        9369 / 9593 - 1,
        _LLAMA | {"framework": "torch-fsdp-compiled"},
        {"overlap_cost": "on"},
        {"overlap_cost": "0"},
    ),
)


def steps() -> Iterator[str]:
    """The table of whole steps: changes of the step time, as measured and as predicted."""
    yield "## Whole steps"
    yield ""
    yield "| change | measured | --overlap-cost | without |"
    yield "|---|---:|---:|---:|"
    for pair in STEPS:
        found = (pair.predicted(overlap_cost=cost) for cost in (True, False))
        changes = " | ".join(f"{each:+.1%}" for each in found)
        yield f"| {pair.what} | {pair.measured:+.1%} | {changes} |"


def _table(title: str, groups: dict[str, list[Row]]) -> Iterator[str]:
    yield ""
    yield f"| {title} | rows | {' | '.join(WAYS)} |"
    yield "|---|" + "---:|" * (len(WAYS) + 1)
    for name, rows in groups.items():
        errors = " | ".join(f"{error(rows, way):.1%}" for way in WAYS.values())
        yield f"| {name} | {len(rows)} | {errors} |"


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The tables of the page."""
    yield "## Kernels of traces"
    yield from _table("beside", grouped(rows, lambda row: row.comm_kind))
    yield from _table("family and beside", grouped(rows, lambda r: f"{r.family}, {r.comm_kind}"))
    yield from _table(
        "class and beside", grouped(rows, lambda r: f"{r.row.kernel_class}, {r.comm_kind}")
    )
    yield ""
    yield "## Published kernels"
    yield ""
    yield "| | measured | law | asked | met |"
    yield "|---|---:|---:|---|---|"
    for row in published():
        asked = f"{row.low:.2f} to {row.high:.2f}"
        met = "yes" if row.is_met else "no"
        yield f"| {row.what} | {row.measured:.2f} | {row.predicted:.2f} | {asked} | {met} |"


def main() -> None:
    """Print the tables for a folder."""
    folder, *more = arguments()
    if "--steps" in more:
        found = steps()
    else:
        rows = clean_rows(Path(folder) / "from_traces.csv")
        found = left_out(rows) if "--left-out" in more else lines(judged(rows))
    for line in found:
        print(line)


if __name__ == "__main__":
    main()
