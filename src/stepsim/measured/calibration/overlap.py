"""What communications take of a GPU, from kernels that ran alone and beside them.

A row of `stepsim.measured.kernels_beside` says how a kernel was launched and which blocks its
communication had; `kernel_demand` and `comm_demand` make of it what the law asks for, and
`fit_overlap` turns the law round: what communications took, if kernels lost what they did.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median, mode

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.measured.kernels_beside import SYNTHETIC, BesideRow, SyntheticLoad
from stepsim.workload.overlap import (
    LAW,
    MOST_TAKEN,
    CommDemand,
    CommEngine,
    CommTraits,
    GpuLimits,
    KernelDemand,
    KernelKind,
    OverlapLaw,
    beside_s,
    slowdown,
)

LEAST_US = 10.0
"""Kernels that are shorter tell the delay, longer ones what memory and SMs cost."""
FEWEST_ROWS = 3
_ROUNDS = 3
_HALVINGS = 60
_MOST_TRIED = 100
_NIC_BYTES_PER_S = 50e9
_INTRANODE_BYTES_PER_S = 153e9
"""Bytes/s of DeepEP over a NIC, and inside a node of H800 (measured, docs/legacy.md of DeepEP)."""
_RESERVED_BYTES = 1024
"""Shared memory that CUDA takes of every block (its programming guide)."""
_TILE = re.compile(r"_(\d+)x(\d+)_(\d+)x(\d+)")
_STAGES = re.compile(r"tilesize(\d+)x(\d+)x(\d+)_stage(\d+)")
_HALF = ("16816", "h16", "f16", "bf16")


def kernel_demand(row: BesideRow, gpu: GpuLimits) -> KernelDemand:
    """What a kernel asks of its GPU, by how it was launched and, for products, by its name."""
    shared = row.shared_bytes or (_tile_bytes(row.kernel) if row.is_product else 0)
    return KernelDemand.launched(
        KernelKind.PRODUCT if row.is_product else KernelKind.STREAM,
        row.blocks,
        row.threads,
        gpu,
        max(gpu.shared_bytes // (shared + _RESERVED_BYTES), 1),
        row.registers,
    )


def _tile_bytes(kernel: str) -> int:
    """Shared memory of a block of a product, by the tile and the stages in its name."""
    tile = _TILE.search(kernel) or _STAGES.search(kernel)
    if not tile:
        return 0
    rows, columns, depth, stages = map(int, tile.groups())
    width = 2 if any(mark in kernel for mark in _HALF) and "tf32" not in kernel else 4
    return (rows + columns) * depth * stages * width


def engine_of(row: BesideRow) -> CommEngine:
    """What carried a row's communication out, by its kernel; rings are not told from trees."""
    name = row.comm_kernel.lower()
    if row.comm_kind == "copy" or "memcpy" in name:
        return CommEngine.COPY_ENGINE
    if re.search(r"hybrid_?ep", name):
        return CommEngine.HYBRIDEP
    if re.search(r"deep_?ep|dpsk::ep|internode|intranode|nvshmem", name):
        return CommEngine.DEEPEP
    if row.comm_kind in ("send_recv", "all_to_all"):
        return CommEngine.POINT_TO_POINT
    if "nvls" in name:
        return CommEngine.NVLS
    return CommEngine.RING_IN_PLACE if row.comm_kind == "all_reduce" else CommEngine.RING


def comm_demand(row: BesideRow, gpu: GpuLimits, traits: CommTraits | None = None) -> CommDemand:
    """What a row's communication took of its GPU, where its `traits` are as they mostly are.

    A trace tells neither how many bytes it moved nor how long it waited. Rings are taken to move
    what their channels can, point-to-point kernels to wait, DeepEP to move what it was measured at.
    A synthetic load takes what its name says.
    """
    load = SyntheticLoad.called(row.comm_kernel)
    if load:
        return CommDemand(sms=load.blocks, bytes_per_s=load.bytes_per_s)
    engine = engine_of(row)
    known = traits or engine.traits
    if engine is CommEngine.COPY_ENGINE:
        return known.moving(0.0)
    if engine is CommEngine.POINT_TO_POINT and known.bytes_per_s is None:
        return known.waiting(row.comm_blocks)
    if engine in (CommEngine.DEEPEP, CommEngine.HYBRIDEP):
        inside = "intranode" in row.comm_kernel
        return known.moving(_INTRANODE_BYTES_PER_S if inside else _NIC_BYTES_PER_S, row.comm_blocks)
    demand = known.moving(row.comm_blocks * gpu.channel_bytes_per_s, row.comm_blocks)
    return demand if known.holds else replace(demand, sms=0)


def predicted_ratio(
    row: BesideRow, gpu: GpuLimits, traits: CommTraits | None = None, law: OverlapLaw = LAW
) -> float:
    """How many times as long a row's kernel takes beside its communication, by the law."""
    comm = comm_demand(row, gpu, traits)
    return _beside_us(row, gpu, comm, law) / row.alone_us


def _beside_us(row: BesideRow, gpu: GpuLimits, comm: CommDemand, law: OverlapLaw = LAW) -> float:
    return beside_s(row.alone_us * 1e-6, kernel_demand(row, gpu), [comm], gpu, law) * 1e6


def mean_error(rows: Sequence[BesideRow], ratio: Callable[[BesideRow], float]) -> float:
    """Mean of |predicted / measured - 1| of some rows."""
    return fmean(abs(ratio(row) / row.ratio - 1) for row in rows)


class EngineFit(Struct, frozen=True, kw_only=True):
    """What an engine's communications took, and how far the law is off with it.

    Errors are means of |predicted / measured beside - 1| over `rows` of 10 us and more: with the
    traits found, with the usual ones, and with no slowdown at all. `short_rows` told the delay.
    """

    engine: CommEngine
    traits: CommTraits
    rows: int
    short_rows: int
    error: float
    usual_error: float
    no_slowdown_error: float


def fit_overlap(rows: Sequence[BesideRow], gpu: GpuLimits) -> list[EngineFit]:
    """SMs, memory bandwidth and delay of every engine with enough rows, in the engines' order.

    SMs are the blocks that most rows saw. The bandwidth is one with which a row of 10 us and more
    is as slow as it was, and all are met best; the delay the median of what shorter ones took
    longer than their share. Engines whose short rows are too few keep their usual delay.
    """
    clean = [row for row in rows if row.is_clean and row.comm_kind != SYNTHETIC]
    return [fit for engine in CommEngine for fit in _fitted(engine, clean, gpu)]


def _fitted(engine: CommEngine, clean: Sequence[BesideRow], gpu: GpuLimits) -> Iterator[EngineFit]:
    own = [row for row in clean if engine_of(row) is engine]
    long = [row for row in own if row.alone_us >= LEAST_US]
    short = [row for row in own if row.alone_us < LEAST_US]
    if len(long) < FEWEST_ROWS:
        return
    traits = replace(engine.traits, sms=mode(row.comm_blocks for row in long), sources={})
    for _ in range(_ROUNDS):
        traits = _with_memory(long, gpu, traits)
        if len(short) >= FEWEST_ROWS:
            late = median(_late_us(row, gpu, traits) for row in short)
            traits = replace(traits, delay_us=round(max(late, 0.0), 3))
    yield EngineFit(
        engine=engine,
        traits=traits,
        rows=len(long),
        short_rows=len(short),
        error=mean_error(long, lambda row: predicted_ratio(row, gpu, traits)),
        usual_error=mean_error(long, lambda row: predicted_ratio(row, gpu)),
        no_slowdown_error=mean_error(long, lambda row: 1.0),
    )


def _with_memory(long: Sequence[BesideRow], gpu: GpuLimits, traits: CommTraits) -> CommTraits:
    """The traits with the memory bandwidth, out of those that rows tell, that meets all best."""
    told = sorted({0.0, *(_taken(row, gpu, traits) for row in long)})
    tried = [
        replace(traits, bytes_per_s=taken) for taken in told[:: max(len(told) // _MOST_TRIED, 1)]
    ]
    return min(
        tried, key=lambda made: mean_error(long, lambda row: predicted_ratio(row, gpu, made))
    )


def _taken(row: BesideRow, gpu: GpuLimits, traits: CommTraits) -> float:
    """Bytes/s of memory with which the law gives what was measured, between none and all."""
    comm = comm_demand(row, gpu, replace(traits, bytes_per_s=0.0))
    low, high = 0.0, gpu.bytes_per_s * MOST_TAKEN
    if _beside_us(row, gpu, comm) >= row.beside_us:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _beside_us(row, gpu, replace(comm, bytes_per_s=middle)) < row.beside_us:
            low = middle
        else:
            high = middle
    return high


def _late_us(row: BesideRow, gpu: GpuLimits, traits: CommTraits) -> float:
    """By how much a kernel took longer than its share of the GPU explains, in us."""
    comm = comm_demand(row, gpu, traits)
    return row.beside_us - row.alone_us * slowdown(kernel_demand(row, gpu), [comm], gpu)
