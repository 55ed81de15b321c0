"""What a rank computes on: rates of matrix products and of memory, from a device file.

Kernels whose time is neither a product's nor a copy's are products of groups, and scans: each has a
rate by family and device, and sizes that an operator states.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import numpy as np
from msgspec import Meta, field

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.fields import Bandwidth, Flops, Size, Time
from stepsim.base.structs import Amount, Names, Noun, Positive, Share, TomlTable, UnitShare
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.choices import Precision
from stepsim.workload.overlap import GpuLimits
from stepsim.workload.rows import OPTIMIZER_STEP

_NARROW, _WIDE, _LATENT = 64, 192, 512
AnyFloats = TypeVar("AnyFloats", float, Floats)
_PROCESSORS = 132  # as Hopper has, where nobody says how many
_GROUPED = (*Precision, "fp8_block")
_LENT = {"fp16": "bf16", "mxfp8": "fp8_block", "fp8_block": "fp8"}


TILE_ROWS, TILE_COLUMNS = 64, 128
"""Rows (tokens of an expert) and columns of results that a processor makes at once."""


class GroupedRate(TomlTable):
    """`[grouped.bf16]` and the like: products of all groups in one kernel.

    They are shares of the peak and of the bandwidth that it reaches.
    """

    share: Annotated[Share, Meta(gt=0, le=1.5, description="of the peak")]
    memory_share: Annotated[Share, Meta(ge=1e-6, le=1)] = 0.89


class GroupedShape(Noun):
    """Products of `count` groups: `rows` x `columns` results of each, sums over `depth`."""

    count: Floats
    rows: Floats
    columns: Floats
    depth: Floats

    def tiles(self) -> Floats:
        """Tiles of results of all groups; the last one of a side is whole, however little it has.

        An example: 4 groups of 130 x 256 have 4 x 3 x 2 tiles of 64 x 128.
        """
        return self.count * np.ceil(self.rows / TILE_ROWS) * np.ceil(self.columns / TILE_COLUMNS)

    def seconds(self, tiles: Floats, rate: float, processors: int) -> Floats:
        """Seconds of so many tiles at a `rate` of full processors in operations a second.

        Tiles are dealt out to processors in rounds, of which the last is half empty on average.
        """
        rounds = tiles / processors + 0.5
        return rounds * processors * TILE_ROWS * TILE_COLUMNS * 2.0 * self.depth / rate


class ScanShape(Noun):
    """A scan of `heads` (batch x heads of a rank), each in chunks of `chunk` tokens.

    A state goes through all chunks once in the forward, and twice in the backward.
    """

    heads: Floats
    chunk: float
    family: str = "chunked"


class ScanRate(TomlTable):
    """`[scan.chunked]` and the like: kernels that pass a state from chunk to chunk.

    Their products reach `share` of the bf16 peak (0: steps alone take time). A state goes on to the
    next chunk in `step_ps`, and all launches of a forward take `start_ps`. With `whole` a processor
    takes all chunks of a head, one after the other, so that heads beyond the processors wait; else
    chunks run side by side. What they read and write is no limit: kernels side by side reach a
    third to a half of the bandwidth.
    """

    share: Annotated[UnitShare, Meta(description="of the bf16 peak; 0: steps alone count")] = 0.0
    step_ps: Time = 0
    start_ps: Time = 0
    whole: bool = False


USUAL_SCAN = ScanRate(share=0.08, step_ps=1_700_000, start_ps=22_000_000)
"""Between those of Hopper and of Blackwell: for a device that names no scan of a family."""


class MatrixRate(TomlTable):
    """`[rate.bf16]` and the like: products in one precision take `flops / rate + start_ps`."""

    rate: Flops
    peak: Flops
    start_ps: Time = 0

    def seconds(self, flops: Floats, launches: Floats, sustained: float = 1.0) -> Floats:
        """Time of products of so many operations in so many launches."""
        return flops / (self.rate * sustained) + self.start_ps / PS_PER_S * launches


class AttentionRate(TomlTable):
    """`[attention.flash2]` and the like: flash attention of one kernel family at head width 128.

    Causal work is counted, in FLOP/s.
    The rate is `rate` times k / (k + `half_sequence` / 2) times w / (w + `half_work`), where k are
    the keys that a token reads, half of the sequence where it reads all before it, and w is
    sequence x batch x heads; `narrow` is its share at head width 64, `wide` the forward's from 192
    on. The backward runs at `backward` of the long forward's rate. Where a token reads a window or
    chosen keys, it pays for `window_keys` more, as tiles at their ends are computed whole (None:
    `half_sequence` / 2). Kernels take `shared_heads` that share a key together, and `latent_heads`
    where the key is latent attention's: they compute as many where a rank has fewer.
    """

    rate: Flops
    half_sequence: Amount = 0.0
    half_work: Amount = 0.0
    narrow: Positive = 0.75
    wide: Positive = 1.0
    backward: Positive = 0.85
    window_keys: Amount | None = None
    shared_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64
    latent_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64

    def flops_per_s(
        self,
        sequence: Floats,
        rows: Floats,
        head_dim: int,
        *,
        backward: bool,
        keys: Floats | None = None,
    ) -> Floats:
        """The rate at a sequence and batch x heads `rows`; a backward needs half as much work."""
        half, work = 0.5 if backward else 1.0, sequence * rows
        # only the forward gains from wide heads
        share = self.narrow if head_dim <= _NARROW else 1.0
        if head_dim >= _WIDE and not backward:
            share = self.wide
        longest = self.rate * (share * (self.backward if backward else 1.0))
        filled = sequence / (sequence + half * self.half_sequence)
        if keys is not None:
            more = self.half_sequence / 2 if self.window_keys is None else self.window_keys
            filled = keys / (keys + half * more)
        return longest * filled * work / (work + half * self.half_work)

    def computed(self, heads: Floats, head_dim: int) -> Floats:
        """Heads that are computed over those that share a key on a rank."""
        together = self.latent_heads if head_dim > _LATENT else self.shared_heads
        return np.maximum(together / heads, 1.0)


class Device(TomlTable):
    """An accelerator: `sustained` is the share of short benchmarks' rates kept in training.

    `also` are other names of it. Devices of one `generation` share what was not measured for each
    of them. `memory_share` is what kernels reach of the bandwidth (bytes/s); no kernel is shorter
    than `kernel_floor_ps`. `processors` (streaming multiprocessors) take tiles of products, as if
    there were 132 where nobody says how many. `channel_bandwidth` (bytes/s) is what one block of
    collectives moves on the fast links. `grouped` are kernels of all experts by precision (also
    `fp8_block`); where experts are launched one by one, each costs `group_start_ps` more. `scans`
    are families of linear attention. Operators that PyTorch calls by a name take `slower` times as
    long as by these numbers, where a trace told it. `reserved_bytes` are contexts and communication
    buffers. `framework` names what its jobs are trained with where nobody says it. `sources` say
    where each number is from, see `stepsim.workload.model.evidence`.
    """

    name: Annotated[str, Meta(description="of the device, in reports")]
    also: Names = ()
    memory_bytes: Size = field(name="memory")
    memory_bandwidth: Bandwidth
    rates: Mapping[Precision, MatrixRate] = field(name="rate")
    attention: Mapping[str, AttentionRate]
    grouped: Mapping[str, GroupedRate] = {}
    scans: Mapping[str, ScanRate] = field(default_factory=dict, name="scan")
    slower: Mapping[str, Positive] = {}
    processors: Annotated[int, Meta(ge=1, le=100_000, description="streaming ones")] | None = None
    channel_bandwidth: Annotated[
        Bandwidth | None, Meta(description="of a block of collectives")
    ] = field(default=None, name="channel")
    group_start_ps: Annotated[Time, Meta(description="of a product of experts among others")] = (
        4_000_000
    )
    vector_rate: Annotated[Flops, Meta(description="TFLOP/s without tensor cores")] = field(
        default=10e12, name="vector"
    )
    sustained: Annotated[Positive, Meta(description="share of the rates kept in training")] = 1.0
    memory_share: Annotated[Share, Meta(ge=1e-6, le=1)] = 0.8
    kernel_floor_ps: Time = 3_000_000
    reserved_bytes: Annotated[Size, Meta(description="contexts and communication buffers")] = field(
        default=0, name="reserved"
    )
    watts: Positive | None = None
    price_per_hour: Positive | None = None
    topology: str | None = None
    generation: Annotated[str, Meta(description="whose devices share what is not measured")] = ""
    framework: Annotated[str | None, Meta(description="of its jobs where nobody says it")] = None
    lends: Annotated[
        tuple[Literal["fp16", "mxfp8"], ...],
        Meta(description="formats that the chip has, at the rates of bf16 and fp8"),
    ] = ("fp16",)
    sources: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not self.memory_bytes:
            raise PlanError("memory is 0: expected some")
        if not {Precision.BF16, Precision.FP16} & self.rates.keys():
            raise PlanError(f"rate: only {', '.join(self.rates)}: expected bf16 or fp16 among them")
        for name in self.grouped:
            if name not in _GROUPED:
                raise PlanError(f"grouped: {name!r}: expected one of {', '.join(_GROUPED)}")

    @property
    def bytes_per_s(self) -> float:
        """What kernels reach of the memory's bandwidth."""
        return self.memory_bandwidth * self.memory_share

    def update_seconds(self, moved: AnyFloats) -> AnyFloats:
        """Time of an optimizer's kernels that move so many bytes."""
        return moved / self.bytes_per_s * self.slower.get(OPTIMIZER_STEP, 1.0)

    @property
    def limits(self) -> GpuLimits:
        """What communication takes a share of; raises PlanError where its SMs are not known."""
        if self.processors is None:
            raise PlanError(
                f"processors of {self.name} are not known: expected a GPU whose device file says "
                "how many multiprocessors it has"
            )
        return GpuLimits(
            sms=self.processors,
            bytes_per_s=self.memory_bandwidth,
            channel_bytes_per_s=self.channel_bandwidth or 0.0,
        )

    @property
    def tile_processors(self) -> int:
        """How many tiles of products run at a time."""
        return self.processors or _PROCESSORS

    @property
    def usual_precision(self) -> Precision:
        """The format of products where nobody says it, and of heads: bf16, or fp16 without it."""
        return Precision.BF16 if Precision.BF16 in self.rates else Precision.FP16

    def rate_of(self, precision: Precision) -> MatrixRate:
        """The rate in a precision; raises PlanError where the device has none."""
        found = self.rates.get(precision)
        if found is None:
            raise PlanError(
                f"precision is {precision}: {self.name} has {', '.join(sorted(self.rates))}"
            )
        return found

    def grouped_rate(self, kind: str) -> GroupedRate:
        """The kernel of all groups in a precision, or in the one that lends it its own.

        Where the device names none, groups reach the share of the peak that products reach.
        """
        name: str | None = kind
        while name is not None:
            if name in self.grouped:
                return self.grouped[name]
            name = _LENT.get(name)
        rate = self.rate_of(Precision.FP8 if kind == "fp8_block" else Precision(kind))
        return GroupedRate(share=rate.rate / rate.peak)

    def grouped_seconds(
        self, kind: str, shape: GroupedShape, tiles: Floats, moved: Floats
    ) -> Floats:
        """Time of one kernel of all groups, of so many tiles and bytes of memory.

        Neither hides the other wholly: the root of the sum of both squares.
        """
        reached = self.grouped_rate(kind)
        precision = Precision.FP8 if kind == "fp8_block" else Precision(kind)
        rate = reached.share * self.rate_of(precision).peak * self.sustained
        memory = moved / (reached.memory_share * self.memory_bandwidth)
        return np.hypot(shape.seconds(tiles, rate, self.tile_processors), memory)

    def scan_seconds(self, shape: ScanShape, flops: Floats, sequence: Floats) -> Floats:
        """Time of a scan over sequences of so many tokens, phase by phase as its `flops` are.

        Its launches grow with its passes.
        """
        rate = self.scans.get(shape.family, USUAL_SCAN)
        passes = np.array([[1], [2], [2]])
        peak = self.rate_of(self.usual_precision).peak * self.sustained
        products = flops / (rate.share * peak) if rate.share else 0.0
        rounds = np.ceil(shape.heads / self.tile_processors) if rate.whole else 1.0
        steps = passes * np.ceil(sequence / shape.chunk)
        waiting = (passes * rate.start_ps + rate.step_ps * steps * rounds) / PS_PER_S
        return waiting + products
