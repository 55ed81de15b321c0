"""What kernels and communications ask of one GPU, and how much slower a kernel is beside them.

A communication takes multiprocessors (SMs) and memory bandwidth from the kernels that run beside
it. The law has three parts. (1) Blocks of a kernel run in waves over the SMs that are left, and
waves are whole: a kernel whose blocks just filled its waves pays one more. (2) Communication goes
at the pace of its wire and takes the memory bandwidth that the wire needs; a kernel gets the rest,
which is its max-min share as long as communication asks for no more than half. (3) Every kernel
takes a little longer, however short: its first and last accesses queue where memory is short, or,
beside point-to-point kernels, wait for something that the traces do not name. Communication itself
is not slowed, and power is left out: no public table tells it from the rest.

The numbers of communications are those of `CommEngine`, each with the kind of evidence and its
source, those of the law stand in `OverlapLaw`. `hta`, `deepseek` and `dlrm` are the families
of public traces in docs/overlap.md, where the errors are, and what they become where a number is
set without the family that it is judged by.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import ceil, sqrt

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, Numbers, shipped
from stepsim.base.units import PS_PER_NS, PS_PER_S


class OverlapLaw(Noun):
    """The numbers of the law that were set on measurements; each says on which.

    `product_memory` is the share of a product's time that memory bounds: published GEMMs, not rows
    of traces. 1.76 beside a ring on A100 (NVIDIA/nccl#1428) needs 0.4 or more to be met within
    15 %, and 1.3 to 1.4 on H100 (pytorch PR 179937) needs 0.3 to 0.7.
    `stream_sms` is the share of a streaming kernel's time that its SMs alone would take: the median
    of 14 rows of `deepseek`, whose wire of 50 GB/s takes next to no memory; judged on `hta`.
    `queue_s` are the seconds that a kernel takes longer for each unit by which memory slows a
    stream of bytes: kernels shorter than 10 us, which no error is judged by. It is the mean of 8.3
    us (beside 24 blocks on A100: median delay 2.5 us where bytes take 1.30 times as long) and 2.5
    us (12 blocks on V100: 0.5 us, 1.20 times). Beside 8 blocks, where memory has room, the median
    delay is 0.0 us.
    `shared` is the share of a last wave that is bound by what all SMs share: what is stated of
    kernels whose grid equals the SMs, 1.7 to 2.0 times as long beside 16 to 24 blocks. They take
    1.8 with it, at most 2.0 beside a ring that moves data; without it 2.0 and 2.2.
    """

    product_memory: float = 0.5
    stream_sms: float = 0.94
    queue_s: float = 5.4e-6
    shared: float = 0.4


LAW = OverlapLaw()
"""The law as it is used."""
MEMORY_DRAW = 0.8
"""Share of the memory bandwidth that a kernel draws while memory bounds it: `memory_share`."""
MOST_TAKEN = 0.95
"""A guess: communication leaves kernels at least a twentieth of the memory bandwidth."""
_MOST_SMS = 1024
# A guess: communication leaves kernels half of the SMs. More blocks than that, as low-latency
# kernels launch, wait for SMs like those of any kernel.
_MOST_HELD = 0.5
ACROSS_NODES_SMS = 16
"""SMs of a ring between nodes of eight GPUs and eight NICs (stated, NVIDIA/nccl#689)."""


class GpuLimits(Noun):
    """What one GPU has to share: SMs, memory bandwidth, and a channel's share of its fast links.

    `channel_bytes_per_s` is what one block of NCCL moves on the fast links at most, 0 where nobody
    says it. The compute units of AMD's GPUs count as SMs.
    """

    sms: int
    bytes_per_s: float
    channel_bytes_per_s: float = 0.0


class KernelKind(StrEnum):
    """Whether products of matrices (attention, convolutions) bound a kernel, or memory does."""

    PRODUCT = "product"
    STREAM = "stream"


class KernelDemand(Noun):
    """What a kernel asks of a GPU.

    It has so many `blocks`, 0 where there are too many to count in waves; `per_sm` are how many of
    them may run on an SM at a time, several numbers where nobody says which. It leaves `free_sms`
    without work. `draw` is the share of the memory bandwidth that it takes while memory bounds it.
    """

    kind: KernelKind = KernelKind.PRODUCT
    blocks: int = 0
    per_sm: Numbers = (1,)
    free_sms: int = 0
    draw: float = MEMORY_DRAW


class Kernel(Noun):
    """A kernel of a row's compute.

    It takes its `weight`, relative to those of the other kernels of the same row, of the compute
    time. `operator` is what PyTorch calls such an operator; `sides` are the shapes of what it
    multiplies. It asks `demand` of a GPU in so many `launches`; where nobody says it, it is a
    product of many blocks, and no launch of it is delayed.
    """

    name: str
    operator: str
    weight: float
    sides: tuple[Numbers, ...] = ()
    demand: KernelDemand = KernelDemand()
    launches: float = 0.0


Kernels = tuple[Kernel, ...]
"""Kernels of a row in the order in which they run; none where nobody says what it is made of."""


class CommTraits(Noun, forbid_unknown_fields=True):
    """What a library's kernel takes of a GPU while it carries out a communication.

    `sms` are the SMs that it holds where nobody says otherwise, `memory_bytes` the bytes of memory
    that it moves for one byte on the wire, `delay_us` by how much it delays every kernel beside it,
    `holds` whether it keeps its SMs while it waits for other ranks. `sources` say where each number
    is from, as those of a device do.
    """

    sms: int
    memory_bytes: float
    delay_us: float
    holds: bool
    sources: Mapping[str, str] = {}

    def moving(self, wire: float, sms: int | None = None) -> "CommDemand":
        """What it takes while it moves `wire` bytes/s; `sms` None: it holds as many as usual."""
        return CommDemand(
            sms=self.sms if sms is None or not self.sms else sms,
            bytes_per_s=wire * self.memory_bytes,
            delay_ps=round(self.delay_us * 1000 * PS_PER_NS),
        )


class CommEngine(StrEnum):
    """What carries a communication out on a GPU; `traits` are its numbers where nobody has better.

    A ring in place reduces a tensor where it is. Point-to-point kernels are those of messages and
    of NCCL's all-to-alls.
    """

    RING = "ring"
    RING_IN_PLACE = "ring_in_place"
    NVLS = "nvls"
    POINT_TO_POINT = "point_to_point"
    DEEPEP = "deepep"
    HYBRIDEP = "hybridep"
    COPY_ENGINE = "copy_engine"

    @property
    def traits(self) -> CommTraits:
        """Its numbers, as `engines.toml` says them."""
        return shipped(__file__, "engines.toml", dict[CommEngine, CommTraits])[self]


class CommSms(Noun, kw_only=False):
    """Multiprocessors that each communication holds; None: as many as usual, 0: copy engines."""

    count: int | None = None

    def __str__(self) -> str:
        """As people write it: `on`, or the number."""
        return "on" if self.count is None else str(self.count)


def parse_comm_sms(text: str) -> CommSms | None:
    """What `on`, `off` or a number of multiprocessors says; raises PlanError for others."""
    word = text.strip().lower()
    if word in ("off", "false", "no"):
        return None
    if word in ("on", "true", "yes"):
        return CommSms()
    if not (word.isascii() and word.isdigit() and int(word) <= _MOST_SMS):
        raise PlanError(f"overlap_cost is {text!r}: expected on, off, or 0 to {_MOST_SMS}")
    return CommSms(int(word))


class CommDemand(Noun):
    """What a communication takes of a GPU while it runs.

    It holds `sms`, moves `bytes_per_s` of memory, and delays kernels beside it by `delay_ps`.
    """

    sms: int = 0
    bytes_per_s: float = 0.0
    delay_ps: int = 0


def waves(blocks: int, per_sm: int, sms: int, law: OverlapLaw = LAW) -> float:
    """How many times a full wave's time so many blocks take on `sms` SMs.

    The last wave has fewer blocks. Inside an SM a block alone is between as fast as before, where
    its latency bounds it, and `per_sm` times as fast, where the SM does: with k of `per_sm` blocks
    the wave takes the square root of k / `per_sm`, the geometric middle. What all SMs share,
    caches and memory, bounds a part of the wave, `shared`, which takes the root of the wave's
    share of a full one; blocks that never were more than a wave gain nothing there.
    """
    full, rest = divmod(blocks, per_sm * sms)
    inside = full + sqrt(ceil(rest / sms) / per_sm)
    outside = full + sqrt(rest / (per_sm * sms)) if full else 1.0
    return inside + law.shared * (outside - inside)


def memory_stretch(draw: float, taken: float, gpu: GpuLimits) -> float:
    """How much longer bytes take that want the share `draw` of the memory bandwidth.

    Communications move `taken` bytes per second of memory meanwhile.
    """
    return max(1.0, draw / (1.0 - min(taken / gpu.bytes_per_s, MOST_TAKEN)))


def slowdown(
    kernel: KernelDemand, beside: Sequence[CommDemand], gpu: GpuLimits, law: OverlapLaw = LAW
) -> float:
    """How many times as long a kernel takes beside communications, without their delay.

    Both losses multiply: who has fewer SMs asks memory for less at a time, and gets less of it. A
    kernel with fewer blocks than SMs draws its share of the bandwidth only.
    """
    blocks, used = kernel.blocks, gpu.sms - kernel.free_sms
    bound, by_sms = 1.0, law.stream_sms
    if kernel.kind is KernelKind.PRODUCT:
        bound, by_sms = law.product_memory, 1.0
    held, longer = sum(each.sms for each in beside), 1.0
    if held > 0:
        left = min(gpu.sms - min(held, int(gpu.sms * _MOST_HELD)), used)
        longer = used / left
        if blocks:
            times = [
                waves(blocks, n, left, law) / waves(blocks, n, used, law) for n in kernel.per_sm
            ]
            longer = sum(times) / len(times)
        longer = max(1.0, longer * by_sms)
    filled = min(1.0, blocks / gpu.sms) if blocks else 1.0
    taken = sum(each.bytes_per_s for each in beside)
    stretch = memory_stretch(kernel.draw * filled, taken, gpu)
    return longer * (1.0 + bound * (stretch - 1.0))


def delay_s(beside: Sequence[CommDemand], gpu: GpuLimits, law: OverlapLaw = LAW) -> float:
    """Seconds that a kernel takes longer beside communications, however short it is."""
    taken = sum(each.bytes_per_s for each in beside)
    queued = law.queue_s * (memory_stretch(MEMORY_DRAW, taken, gpu) - 1.0)
    return max([queued, *(each.delay_ps / PS_PER_S for each in beside)])


def row_slowdown(
    kernels: Kernels, alone_s: float, beside: Sequence[CommDemand], gpu: GpuLimits
) -> float:
    """How many times as long a row of `alone_s` seconds takes beside communications all the time.

    Its kernels are all slowed at once, by their mean, for a row does not say which runs when.
    """
    whole = sum(each.weight for each in kernels)
    shares: dict[KernelDemand, float] = {}
    for each in kernels:
        shares[each.demand] = shares.get(each.demand, 0.0) + each.weight / whole
    longer = sum(share * (slowdown(each, beside, gpu) - 1.0) for each, share in shares.items())
    launches = sum(each.launches for each in kernels)
    delayed = launches * delay_s(beside, gpu) / alone_s if launches else 0.0
    return 1.0 + longer + delayed
