"""Rows of a table of kernels that ran alone and beside communication, as the law has them."""

import re
from math import prod
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.files.reading import csv_rows
from stepsim.measured.profile.kernel_classes import KernelClass, kernel_work
from stepsim.workload.overlap import CommDemand, CommEngine, GpuLimits, KernelDemand, KernelKind

LEAST_US = 10.0
"""Kernels that are shorter tell the delay, longer ones what memory and SMs cost."""
_MOST_SPREAD = 0.15
_RATIOS = 0.85, 3.0
_NIC_BYTES_PER_S = 50e9
_INTRANODE_BYTES_PER_S = 153e9
"""Bytes/s of DeepEP over a NIC, and inside a node of H800 (measured, docs/legacy.md of DeepEP)."""
_RESERVED_BYTES = 1024
"""Shared memory that CUDA takes of every block (its programming guide)."""
_SHARED_BYTES = MappingProxyType({"volta": 96 << 10, "ampere": 164 << 10, "cdna3": 64 << 10})
_USUAL_SHARED = 227 << 10
"""Shared memory of an SM by generation (data sheets), and of others: Hopper and Blackwell."""
_REGISTERS = 65536
_THREADS = 2048
_PRODUCT_THREADS = 256
"""Threads of products that fill an SM: with up to 255 registers each they take all 65,536."""
_STREAM_REGISTERS = (32, 40, 48, 64)
"""Registers of a streaming kernel's threads: nobody says which, so waves are averaged over them."""
_MOST_BLOCKS = 32
_TILE = re.compile(r"_(\d+)x(\d+)_(\d+)x(\d+)")
_STAGES = re.compile(r"tilesize(\d+)x(\d+)x(\d+)_stage(\d+)")
_PRODUCT_FAMILIES = ("attention", "grouped_gemm", "conv", "gemm")
"""Families of kernels that matrix units bound; memory bounds the others."""
_OTHER = "other"
_FAMILIES = MappingProxyType(
    {
        KernelClass.PRODUCTS: "gemm",
        KernelClass.BATCHED: "gemm",
        KernelClass.EXPERTS: "grouped_gemm",
        KernelClass.ATTENTION: "attention",
        KernelClass.CONVOLUTIONS: "conv",
        KernelClass.NORMS: "norm",
        KernelClass.EMBEDDING: "embedding",
        KernelClass.OTHER: _OTHER,
    }
)
_BESIDE_PRODUCTS = re.compile(
    r"split_?k_?reduce|reduce_wgrad|bwd_?preprocess|gemv|gemmk1|gemmsn|ton(?:chw|hwc)",
    re.IGNORECASE,
)
"""Kernels that sum split products, lay their operands out, or multiply by a vector: bytes."""
_HALF = ("16816", "h16", "f16", "bf16")


class BesideRow(Struct, frozen=True, rename={"kernel_class": "class"}):
    """A kernel that ran alone and beside a communication of so many blocks; times in us."""

    gpu: str
    kernel_class: str
    kernel: str
    grid: str
    block: str
    comm_kind: str
    comm_kernel: str
    comm_blocks: int
    alone_us: float
    alone_p25_us: float
    alone_p75_us: float
    beside_us: float

    @property
    def ratio(self) -> float:
        """How many times as long it took beside the communication."""
        return self.beside_us / self.alone_us

    @property
    def is_clean(self) -> bool:
        """Whether executions alone lie close together, and the ratio is one of a single size."""
        spread = (self.alone_p75_us - self.alone_p25_us) / self.alone_us
        return spread <= _MOST_SPREAD and _RATIOS[0] <= self.ratio <= _RATIOS[1]

    @property
    def is_product(self) -> bool:
        """Whether matrix units bound it, and its name does not say otherwise."""
        by_name = _family_of(self.kernel)
        return self.kernel_class in _PRODUCT_FAMILIES and by_name in (*_PRODUCT_FAMILIES, _OTHER)


def _family_of(name: str) -> str:
    """What a kernel does by its name, as tables of kernels beside communication call it."""
    if _BESIDE_PRODUCTS.search(name):
        return "reduce"
    return _FAMILIES.get(kernel_work(name).work, "elementwise")


def read_beside_rows(path: Path) -> list[BesideRow]:
    """The rows of a table."""
    _, rows = csv_rows(path, path.read_text(), StepsimError)
    counted = [{**row, "comm_blocks": row["comm_blocks"] or "0"} for _, row in rows]
    return [msgspec.convert(row, BesideRow, strict=False) for row in counted]


def kernel_demand(row: BesideRow, gpu: GpuLimits, generation: str) -> KernelDemand:
    """What a kernel asks of its GPU, by how it was launched and, for products, by its name.

    As many of its blocks fit an SM as that has shared memory. A grid that is a multiple of the SMs
    was made to fill them once, so it does.
    """
    blocks, threads = (
        prod(int(side) for side in text.split("x")) if text else 0 for text in (row.grid, row.block)
    )
    most = min(max(_THREADS // threads, 1), _MOST_BLOCKS) if threads else 1
    if blocks and blocks % gpu.sms == 0 and blocks // gpu.sms <= most:
        per_sm = {blocks // gpu.sms}
    elif row.is_product:
        shared = _SHARED_BYTES.get(generation, _USUAL_SHARED)
        fits = max(shared // (_tile_bytes(row) + _RESERVED_BYTES), 1)
        per_sm = {max(min(max(_PRODUCT_THREADS // max(threads, 1), 1), fits), 1)}
    else:
        able = (_REGISTERS // (max(threads, 1) * each) for each in _STREAM_REGISTERS)
        per_sm = {min(max(each, 1), most) for each in able}
    kind = KernelKind.PRODUCT if row.is_product else KernelKind.STREAM
    return KernelDemand(kind=kind, blocks=blocks, per_sm=tuple(sorted(per_sm)))


def _tile_bytes(row: BesideRow) -> int:
    """Shared memory of a block of a product, by the tile and the stages in its name."""
    tile = _TILE.search(row.kernel) or _STAGES.search(row.kernel)
    if not (tile and row.is_product):
        return 0
    rows, columns, depth, stages = map(int, tile.groups())
    is_half = any(mark in row.kernel for mark in _HALF) and "tf32" not in row.kernel
    return (rows + columns) * depth * stages * (2 if is_half else 4)


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


def comm_demand(row: BesideRow, gpu: GpuLimits) -> CommDemand:
    """What a row's communication took of its GPU.

    A trace tells neither how many bytes it moved nor how long it waited. Rings are taken to move
    what their channels can, point-to-point kernels to wait, DeepEP to move what it was measured at.
    """
    engine = engine_of(row)
    known = engine.traits
    if engine is CommEngine.COPY_ENGINE:
        return known.moving(0.0)
    if engine is CommEngine.POINT_TO_POINT:
        return replace(known.moving(0.0, row.comm_blocks), sms=0)
    if engine in (CommEngine.DEEPEP, CommEngine.HYBRIDEP):
        inside = "intranode" in row.comm_kernel
        return known.moving(_INTRANODE_BYTES_PER_S if inside else _NIC_BYTES_PER_S, row.comm_blocks)
    demand = known.moving(row.comm_blocks * gpu.channel_bytes_per_s, row.comm_blocks)
    return demand if known.holds else replace(demand, sms=0)
