"""How far the slowdown of kernels beside communication is from what was measured.

Usage: python benchmarks/accuracy_overlap.py FOLDER/reference/overlap [--steps | --published]
Prints the tables of docs/overlap.md; with `--steps` that of whole steps, which takes a minute, with
`--published` errors of published steps by the closed form, with the slowdown and without.
`from_traces.csv` holds kernels of public traces that ran alone and beside a communication kernel.
Errors are |predicted / measured beside - 1| of clean rows of 10 us and more. A trace says neither
how many bytes a communication moved nor how long it waited: rings are taken to move what their
channels can, point-to-point kernels to wait, DeepEP to move 50 GB/s, the rate of its NIC. Published
kernels are those of threads, as in `kernels_published.csv`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import log, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accuracy_order import most_npus
from numpy.typing import NDArray
from sizes import arguments

import stepsim
from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.files.reading import csv_rows
from stepsim.runs.published import model_of
from stepsim.workload.model.plan import Precision
from stepsim.workload.model.slowing import Slowing
from stepsim.workload.overlap import (
    CommDemand,
    CommEngine,
    GpuLimits,
    KernelDemand,
    KernelKind,
    beside_s,
    gpu_limits,
    slowdown,
    slowed_s,
)

GPUS = (
    ("v100", "volta", 900e9, 96),
    ("h800", "hopper", 3350e9, 227),
    ("h200", "hopper", 4800e9, 227),
    ("h100", "hopper", 3350e9, 227),
    ("a100-pg509", "ampere", 1555e9, 164),
    ("a100-sxm4-40", "ampere", 1555e9, 164),
    ("a100-pcie-40", "ampere", 1555e9, 164),
    ("a100", "ampere", 2039e9, 164),
    ("a800", "ampere", 2039e9, 164),
    ("b200", "blackwell", 8000e9, 227),
    ("b300", "blackwell-ultra", 8000e9, 227),
    ("mi300", "cdna3", 5300e9, 64),
)
"""Part of a GPU's name (the first fits), generation, memory bandwidth, KiB of shared memory."""
PRODUCTS = {"gemm", "grouped_gemm", "attention", "conv"}
NIC = 50e9
_TILE = re.compile(r"_(\d+)x(\d+)_(\d+)x(\d+)")
_STAGES = re.compile(r"tilesize(\d+)x(\d+)x(\d+)_stage(\d+)")
_HALF = ("16816", "h16", "f16", "bf16")


class Row(NamedTuple):
    """A kernel that was measured alone and beside a communication: times in us."""

    family: str
    comm_kind: str
    kernel_class: str
    alone_us: float
    beside_us: float
    kernel: KernelDemand
    comm: CommDemand
    gpu: GpuLimits
    shares: float

    @property
    def measured(self) -> float:
        """How many times as long it took beside the communication."""
        return self.beside_us / self.alone_us


def law(row: Row) -> float:
    """Times as long by the law of `stepsim.workload.overlap`."""
    return beside_s(row.alone_us * 1e-6, row.kernel, [row.comm], row.gpu) / row.alone_us * 1e6


def nothing(_: Row) -> float:
    """As long as alone."""
    return 1.0


def plain_shares(row: Row) -> float:
    """Times as long where every kernel loses the share of the SMs that communication holds."""
    return row.shares


Predicted = Callable[[Row], float]
WAYS: dict[str, Predicted] = {
    "law": law,
    "no slowdown": nothing,
    "shares of SMs": plain_shares,
}


def read_rows(path: Path) -> list[Row]:
    """The clean rows of 10 us and more of a table of kernels; GPUs that nobody knows are left."""
    rows = csv_rows(path, path.read_text(), StepsimError)
    used = [row for row in rows if row["clean"] == "1" and float(row["alone_us"]) >= 10]
    return [row for row in map(_row, used) if row]


def _row(row: dict[str, str]) -> Row | None:
    known = next((gpu for gpu in GPUS if gpu[0] in row["gpu"].lower().replace(" ", "-")), None)
    limits = gpu_limits(known[1], known[2]) if known else None
    if not known or not limits:
        return None
    is_product = row["class"] in PRODUCTS
    kernel = KernelDemand.launched(
        KernelKind.PRODUCT if is_product else KernelKind.STREAM,
        _product_of(row["grid"]),
        _product_of(row["block"]),
        limits,
        _tile_blocks(row["kernel"], known[3]) if is_product else 32,
    )
    blocks = int(row["comm_blocks"] or 0)
    return Row(
        family=row["family"],
        comm_kind=row["comm_kind"],
        kernel_class=row["class"],
        alone_us=float(row["alone_us"]),
        beside_us=float(row["beside_us"]),
        kernel=kernel,
        comm=_comm(row["comm_kind"], row["comm_kernel"], blocks, limits),
        gpu=limits,
        shares=limits.sms / max(limits.sms - blocks, 1),
    )


def _product_of(text: str) -> int:
    return prod(map(int, text.split("x"))) if text else 0


def _tile_blocks(kernel: str, shared_kib: int) -> int:
    """Blocks of a product that fit the shared memory of an SM, by the tile in its name."""
    tile = _TILE.search(kernel) or _STAGES.search(kernel)
    if not tile:
        return 32
    rows, columns, depth, stages = map(int, tile.groups())
    width = 2 if any(mark in kernel for mark in _HALF) and "tf32" not in kernel else 4
    return max(shared_kib * 1024 // ((rows + columns) * depth * stages * width + 1024), 1)


def _comm(kind: str, kernel: str, blocks: int, gpu: GpuLimits) -> CommDemand:
    """What a communication kernel takes; its name says neither algorithm nor protocol of a ring."""
    if "memcpy" in kernel.lower():
        return CommDemand.of(CommEngine.COPY_ENGINE, 0.0)
    if kind == "send_recv" or (kind == "all_to_all" and "SendRecv" in kernel):
        return CommDemand.waiting(CommEngine.POINT_TO_POINT, blocks)
    if kind == "all_to_all":
        return CommDemand.of(CommEngine.DEEPEP, NIC, blocks)
    engine = CommEngine.RING_IN_PLACE if kind == "all_reduce" else CommEngine.RING
    if "nvls" in kernel.lower():
        engine = CommEngine.NVLS
    return CommDemand.of(engine, blocks * gpu.channel_bytes_per_s, blocks)


def error(rows: Iterable[Row], predicted: Predicted) -> float:
    """Mean of |predicted / measured - 1|."""
    errors = [abs(predicted(row) / row.measured - 1) for row in rows]
    return sum(errors) / len(errors)


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows by a key, in its order."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


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
    ampere, hopper = gpu_limits("ampere", 2039e9), gpu_limits("hopper", 3350e9)
    assert ampere
    assert hopper
    ring = CommDemand.of(CommEngine.RING, 300e9)
    product, stream = KernelDemand(), KernelDemand(kind=KernelKind.STREAM)
    gemm = beside_s(1.18e-3, product, [ring], ampere) / 1.18e-3
    attention = beside_s(0.18e-3, product, [ring], ampere) / 0.18e-3
    elementwise = beside_s(0.02e-3, stream, [ring], ampere) / 0.02e-3
    wire = 24 * hopper.channel_bytes_per_s
    matmul = slowdown(product, [CommDemand.of(CommEngine.RING, wire)], hopper)
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
        factor = slowdown(KernelDemand(), [CommDemand.of(engine, wire)], gpu)
        predicted = max(slowed_s(gemm_s, comm_s, factor), comm_s) * 1e3
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
        _OSS | _BRIDGE | _COMBINED,
        {"dispatch": "hybridep"},
        {"dispatch": "all_to_all"},
    ),
    StepPair(
        "torch179937: copy engines for SMs",
        "llama-3-8b",
        "hgx-h100",
        9369 / 9593 - 1,
        _LLAMA | {"framework": "torch-fsdp-compiled"},
        {"comm_sms": None},
        {"comm_sms": 0},
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


def published_errors(folder: Path) -> Iterator[str]:
    """The table of published steps: mean sizes of errors by source, without slowdown and with it.

    The law takes the place of the framework's factor beside gathers; no constant is set again.
    """
    yield "## Published steps"
    yield ""
    yield "| runs of | runs | without | --overlap-cost | without, one factor | with, one factor |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in ("dev.csv", "cards_dev.csv"):
        steps, _ = read_published_steps(folder / name)
        whole = [step for step in steps if step.is_complete and step.measured_s]
        judged = [step for step in whole if step.plan.npus <= most_npus(step)]
        named = {"dev.csv": str.strip, "cards_dev.csv": "cards: {}".format}[name]
        by_source: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for step in judged:
            with suppress(StepsimError):
                by_source[named(step.source)].append(_both_errors(step))
        for source, logs in by_source.items():
            yield _source_line(source, np.array(logs))
        yield _source_line(f"all of {name}", np.concatenate([*map(np.array, by_source.values())]))


def _both_errors(step: PublishedStep) -> tuple[float, float]:
    """Logarithm of predicted over measured, without slowdown and with it."""
    plain = model_of(step)
    slowed = replace(
        plain,
        framework=replace(plain.framework, fsdp_slowdown=0.0),
        slowing=Slowing.on(plain.device, None),
    )
    assert step.measured_s
    measured_s = step.measured_s
    first, last = (
        log(float(model.seconds([step.plan])[0]) / measured_s) for model in (plain, slowed)
    )
    return first, last


def _source_line(source: str, logs: NDArray[np.float64]) -> str:
    """Mean sizes of errors, as they are and after one factor for all."""
    errors = [np.expm1(logs), np.expm1(logs - logs.mean(axis=0))]
    cells = " | ".join(f"{size:.1%}" for each in errors for size in np.abs(each).mean(axis=0))
    return f"| {source} | {len(logs)} | {cells} |"


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
        "class and beside", grouped(rows, lambda r: f"{r.kernel_class}, {r.comm_kind}")
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
    if "--published" in more:
        found = published_errors(Path(folder).parent / "steps")
    else:
        found = steps() if more else lines(read_rows(Path(folder) / "from_traces.csv"))
    for line in found:
        print(line)


if __name__ == "__main__":
    main()
