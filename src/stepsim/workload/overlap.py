"""What kernels and communications ask of one GPU, and how much slower a kernel is beside them.

A communication takes multiprocessors (SMs) and memory bandwidth from the kernels that run beside
it. The law has three parts. (1) Blocks of a kernel run in waves over the SMs that are left, and
waves are whole: a kernel whose blocks just filled its waves pays one more. (2) Communication goes
at the pace of its wire and takes the memory bandwidth that the wire needs; a kernel gets the rest,
which is its max-min share as long as communication asks for no more than half. (3) Every kernel
takes a little longer, however short: its first and last accesses queue where memory is short, or,
beside point-to-point kernels, wait for something that the traces do not name. Communication itself
is not slowed, and power is left out: no public table tells it from the rest.

Where each number is from stands beside it, as the kind of evidence and its source. `hta`,
`deepseek` and `dlrm` are the families of public traces in docs/overlap.md, where the errors are.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import ceil, sqrt

from msgspec import Struct

from stepsim.base.structs import NameWithFields
from stepsim.base.units import PS_PER_S

PRODUCT_MEMORY = 0.5
"""Share of a product's time that memory bounds.

Set on published GEMMs, not on rows of traces: 1.76 beside a ring on A100 (NVIDIA/nccl#1428) needs
0.4 or more to be met within 15 %, and 1.3 to 1.4 on H100 (pytorch PR 179937) needs 0.3 to 0.7.
"""
STREAM_SMS = 0.94
"""Share of a streaming kernel's time that its SMs alone would take.

The median of 14 rows of `deepseek`, whose wire of 50 GB/s takes next to no memory; judged on `hta`.
"""
QUEUE_S = 5.4e-6
"""Seconds that a kernel takes longer for each unit by which memory slows a stream of bytes.

Set on kernels shorter than 10 us, which no error here is judged by: the mean of 8.3 (beside 24
blocks on A100: median delay 2.5 us where bytes take 1.30 times as long) and 2.5 (12 blocks on V100:
0.5 us, 1.20 times). Beside 8 blocks, where memory has room, the median delay is 0.0 us.
"""
MEMORY_DRAW = 0.8
"""Share of the memory bandwidth that a kernel draws while memory bounds it: `memory_share`."""
_SHARED = 0.4
"""Share of a last wave that is bound by what all SMs share.

Set on what is stated of kernels whose grid equals the SMs, 1.7 to 2.0 times as long beside 16 to 24
blocks: 1.8 with it, at most 2.0 beside a ring that moves data; without it 2.0 and 2.2.
"""
_MOST_TAKEN = 0.95
"""A guess: communication leaves kernels at least a twentieth of the memory bandwidth."""
ACROSS_NODES_SMS = 16
"""SMs of a ring between nodes of eight GPUs and eight NICs (stated, NVIDIA/nccl#689)."""
_REGISTERS = 65536
_THREADS = 2048
_PRODUCT_THREADS = 256
"""Threads of products that fill an SM: with up to 255 registers each they take all 65,536."""
_STREAM_REGISTERS = (32, 40, 48, 64)
"""Registers of a streaming kernel's threads: nobody says which, so waves are averaged over them."""
_MOST_BLOCKS = 32


class GpuLimits(Struct, frozen=True, kw_only=True):
    """What one GPU has to share: SMs, memory bandwidth, and a channel's share of its fast links.

    `channel_bytes_per_s` is what one block of NCCL moves on the fast links at most.
    """

    sms: int
    bytes_per_s: float
    channel_bytes_per_s: float = 0.0


_GENERATIONS = {
    "volta": (80, 6 * 20e9 / 12),
    "ampere": (108, 12 * 20e9 / 24),
    "hopper": (132, 18 * 20.6e9 / 24),
    "blackwell": (148, 18 * 40.1e9 / 24),
    "blackwell-ultra": (160, 18 * 40.1e9 / 24),
    "cdna3": (304, 0.0),
}
"""SMs (data sheets) and bytes per second of a channel, by generation of GPUs.

A channel has its share of the NVLinks at the rate that NCCL plans for each (topo.h of NCCL,
`SM80_NVLINK_BW` and the like). Channels: 12 seen in `dlrm` (V100), 24 in `hta` (A100), 24 in logs
of 8 x H100 ("24 coll channels, 24 collnet channels, 16 nvls channels"); Blackwell as Hopper, a
guess. The compute units of cdna3 count as SMs.
"""


KNOWN_GENERATIONS = tuple(_GENERATIONS)
"""Generations of GPUs whose limits are known."""


def gpu_limits(generation: str, memory_bandwidth: float) -> GpuLimits | None:
    """Limits of a GPU of a generation with so many bytes per second of memory; None if unknown."""
    if generation not in _GENERATIONS:
        return None
    sms, channel = _GENERATIONS[generation]
    return GpuLimits(sms=sms, bytes_per_s=memory_bandwidth, channel_bytes_per_s=channel)


class KernelKind(StrEnum):
    """Whether products of matrices (attention, convolutions) bound a kernel, or memory does."""

    PRODUCT = "product"
    STREAM = "stream"


class KernelDemand(Struct, frozen=True, kw_only=True):
    """What a kernel asks of a GPU.

    It has so many `blocks`, 0 where there are too many to count in waves; `per_sm` are how many of
    them may run on an SM at a time, several numbers where nobody says which. It leaves `free_sms`
    without work. `draw` is the share of the memory bandwidth that it takes while memory bounds it.
    """

    kind: KernelKind = KernelKind.PRODUCT
    blocks: int = 0
    per_sm: tuple[int, ...] = (1,)
    free_sms: int = 0
    draw: float = MEMORY_DRAW

    @property
    def memory(self) -> float:
        """Share of its time that memory bounds."""
        return PRODUCT_MEMORY if self.kind is KernelKind.PRODUCT else 1.0

    @property
    def needs_sms(self) -> float:
        """Share of its time that its SMs alone would take."""
        return 1.0 if self.kind is KernelKind.PRODUCT else STREAM_SMS

    @classmethod
    def launched(
        cls,
        kind: KernelKind,
        blocks: int,
        threads: int,
        gpu: GpuLimits,
        shared_memory_blocks: int = _MOST_BLOCKS,
    ) -> "KernelDemand":
        """The demand of a kernel launched as `blocks` of so many threads.

        At most `shared_memory_blocks` fit the shared memory of an SM. A grid that is a multiple of
        the SMs was made to fill them once, so it does.
        """
        most = min(max(_THREADS // threads, 1), _MOST_BLOCKS) if threads else 1
        if blocks and blocks % gpu.sms == 0 and blocks // gpu.sms <= most:
            return cls(kind=kind, blocks=blocks, per_sm=(blocks // gpu.sms,))
        if kind is KernelKind.PRODUCT:
            held = min(max(_PRODUCT_THREADS // max(threads, 1), 1), shared_memory_blocks)
            return cls(kind=kind, blocks=blocks, per_sm=(max(held, 1),))
        able = {_REGISTERS // (max(threads, 1) * each) for each in _STREAM_REGISTERS}
        held_each = {min(max(each, 1), most) for each in able}
        return cls(kind=kind, blocks=blocks, per_sm=tuple(sorted(held_each)))


class Demands(Struct, frozen=True):
    """Kernels of a row, one after the other: shares of its time with what each asks of a GPU.

    So many `launches` are delayed; what is missing from a whole is time in which no kernel runs.
    Without a word about them they are products of many blocks, and nothing is said of launches.
    """

    shares: tuple[tuple[float, KernelDemand], ...] = ((1.0, KernelDemand()),)
    launches: float = 0.0


class CommEngine(NameWithFields):
    """What carries a communication out on a GPU.

    `sms` are the SMs that it holds where nobody says otherwise, `memory_bytes` the bytes of memory
    that it moves for one byte on the wire, `delay_ps` by how much it delays every kernel beside it,
    `holds` whether it keeps its SMs while it waits for other ranks.

    NCCL's block holds an SM for itself (stated, NVIDIA/nccl#689), and a ring moves 2 to 3 bytes per
    byte on the wire (stated, NVIDIA/nccl#1428): 3 where it reads one tensor of a user and writes
    another, as gathers and scatters do; in place, as all-reduce, the middle is taken. 24 channels:
    `hta` and logs of H100; 16 of NVLink SHARP: logs of H100; 16 blocks of an all-to-all:
    NVIDIA/nccl#1598. Point-to-point kernels hold no SM that others miss while they wait: beside
    53 kernels of `hta` none loses a wave (measured); blocks end with their own peer's message.
    DeepEP holds 20 SMs (`deepseek`), HybridEP 16 by Megatron-Core's default
    (`moe_hybridep_num_sms`). Copy engines hold none (stated, pytorch PR 172714); they read there
    and write here. Bytes of SHARP, DeepEP and HybridEP are guesses of the same range.

    Beside point-to-point kernels every kernel takes 1.5 us longer: the mean of the median delays of
    five groups (trace, kind, blocks) of kernels shorter than 10 us, which no error is judged by.
    """

    sms: int
    memory_bytes: float
    delay_ps: int
    holds: bool

    RING = "ring", 24, 3.0, 0, True
    RING_IN_PLACE = "ring_in_place", 24, 2.5, 0, True
    NVLS = "nvls", 16, 2.0, 0, True
    POINT_TO_POINT = "point_to_point", 16, 3.0, 1_500_000, False
    DEEPEP = "deepep", 20, 2.5, 1_500_000, True
    HYBRIDEP = "hybridep", 32, 2.5, 1_500_000, True
    COPY_ENGINE = "copy_engine", 0, 2.0, 0, False


class CommDemand(Struct, frozen=True, kw_only=True):
    """What a communication takes of a GPU while it runs.

    It holds `sms`, moves `bytes_per_s` of memory, and delays kernels beside it by `delay_ps`.
    """

    sms: int = 0
    bytes_per_s: float = 0.0
    delay_ps: int = 0

    @classmethod
    def of(cls, engine: CommEngine, wire: float, sms: int | None = None) -> "CommDemand":
        """That of an engine which moves `wire` bytes per second; `sms` None: as many as usual."""
        return cls(
            sms=engine.sms if sms is None or not engine.sms else sms,
            bytes_per_s=wire * engine.memory_bytes,
            delay_ps=engine.delay_ps,
        )

    @classmethod
    def waiting(cls, engine: CommEngine, sms: int | None = None) -> "CommDemand":
        """That of one which waits for other ranks: it holds SMs, if it does, and moves nothing."""
        return cls.of(engine, 0.0, sms if engine.holds else 0)

    @property
    def is_nothing(self) -> bool:
        """Whether kernels do not notice it."""
        return not (self.sms or self.bytes_per_s or self.delay_ps)


def waves(blocks: int, per_sm: int, sms: int) -> float:
    """How many times a full wave's time so many blocks take on `sms` SMs.

    The last wave has fewer blocks. Inside an SM a block alone is between as fast as before, where
    its latency bounds it, and `per_sm` times as fast, where the SM does: with k of `per_sm` blocks
    the wave takes the square root of k / `per_sm`, the geometric middle. What all SMs share,
    caches and memory, bounds a part of the wave, `_SHARED`, which takes the root of the wave's
    share of a full one; blocks that never were more than a wave gain nothing there.
    """
    full, rest = divmod(blocks, per_sm * sms)
    inside = full + sqrt(ceil(rest / sms) / per_sm)
    outside = full + sqrt(rest / (per_sm * sms)) if full else 1.0
    return inside + _SHARED * (outside - inside)


def sm_slowdown(kernel: KernelDemand, held: int, gpu: GpuLimits) -> float:
    """How much longer a kernel's blocks take while communications hold so many SMs."""
    left = max(gpu.sms - held, 1)
    if held <= 0:
        return 1.0
    if not kernel.blocks:
        longer = (gpu.sms - kernel.free_sms) / min(left, gpu.sms - kernel.free_sms)
    else:
        longer = sum(
            waves(kernel.blocks, each, left) / waves(kernel.blocks, each, gpu.sms)
            for each in kernel.per_sm
        ) / len(kernel.per_sm)
    return max(1.0, longer * kernel.needs_sms)


def memory_stretch(draw: float, taken: float, gpu: GpuLimits) -> float:
    """How much longer bytes take that want the share `draw` of the memory bandwidth.

    Communications move `taken` bytes per second of memory meanwhile.
    """
    return max(1.0, draw / (1.0 - min(taken / gpu.bytes_per_s, _MOST_TAKEN)))


def slowdown(kernel: KernelDemand, beside: Sequence[CommDemand], gpu: GpuLimits) -> float:
    """How many times as long a kernel takes beside communications, without their delay.

    Both losses multiply: who has fewer SMs asks memory for less at a time, and gets less of it. A
    kernel with fewer blocks than SMs draws its share of the bandwidth only.
    """
    held = min(sum(each.sms for each in beside), gpu.sms - 1)
    taken = sum(each.bytes_per_s for each in beside)
    filled = min(1.0, kernel.blocks / gpu.sms) if kernel.blocks else 1.0
    stretch = memory_stretch(kernel.draw * filled, taken, gpu)
    return sm_slowdown(kernel, held, gpu) * (1.0 + kernel.memory * (stretch - 1.0))


def delay_s(beside: Sequence[CommDemand], gpu: GpuLimits) -> float:
    """Seconds that a kernel takes longer beside communications, however short it is."""
    taken = sum(each.bytes_per_s for each in beside)
    queued = QUEUE_S * (memory_stretch(MEMORY_DRAW, taken, gpu) - 1.0)
    return max([queued, *(each.delay_ps / PS_PER_S for each in beside)])


def beside_s(
    alone_s: float, kernel: KernelDemand, beside: Sequence[CommDemand], gpu: GpuLimits
) -> float:
    """Seconds of a kernel of `alone_s` seconds that runs beside communications all the time."""
    return alone_s * slowdown(kernel, beside, gpu) + delay_s(beside, gpu)


def row_slowdown(
    demands: Demands, alone_s: float, beside: Sequence[CommDemand], gpu: GpuLimits
) -> float:
    """How many times as long a row of `alone_s` seconds takes beside communications all the time.

    Its kernels are all slowed at once, by their mean, for a row does not say which runs when.
    """
    longer = sum(share * (slowdown(each, beside, gpu) - 1.0) for share, each in demands.shares)
    delayed = demands.launches * delay_s(beside, gpu) / alone_s if demands.launches else 0.0
    return 1.0 + longer + delayed


def slowed_s(compute_s: float, beside_comm_s: float, factor: float) -> float:
    """Seconds of compute that runs beside communication until that ends: the closed estimate.

    Compute that takes `compute_s` alone goes at 1 / `factor` of its speed for the first
    `beside_comm_s` seconds, or until it ends.
    """
    return compute_s + min(beside_comm_s, compute_s * factor) * (1.0 - 1.0 / factor)
