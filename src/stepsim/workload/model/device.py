"""What a rank computes on: rates of matrix products and of memory, from a device file."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.plan import Precision

_NARROW = 64


class MatrixRate(Struct, frozen=True, kw_only=True):
    """Matrix products in one precision: `flops / rate + start_ps`; rates in FLOP per second."""

    rate: float
    peak: float
    start_ps: int = 0

    def seconds(self, flops: Floats, launches: Floats, sustained: float = 1.0) -> Floats:
        """Time of products of so many operations in so many launches."""
        return flops / (self.rate * sustained) + self.start_ps / PS_PER_S * launches


class AttentionRate(Struct, frozen=True, kw_only=True):
    """Flash attention of one kernel family at head width 128: causal work counted, in FLOP/s.

    The rate is `rate` times seq / (seq + `half_sequence`) times w / (w + `half_work`), where w is
    sequence x batch x heads; `narrow` is its share at head width 64. The backward runs at
    `backward` of the long forward's rate.
    """

    rate: float
    half_sequence: float = 0.0
    half_work: float = 0.0
    narrow: float = 0.75
    backward: float = 0.85

    def flops_per_s(
        self, sequence: Floats, rows: Floats, head_dim: int, *, backward: bool
    ) -> Floats:
        """The rate at a sequence and batch x heads `rows`; a backward needs half as much work."""
        half, work = 0.5 if backward else 1.0, sequence * rows
        share = self.narrow if head_dim <= _NARROW else 1.0
        longest = self.rate * share * (self.backward if backward else 1.0)
        filled = sequence / (sequence + half * self.half_sequence)
        return longest * filled * work / (work + half * self.half_work)


class Device(Struct, frozen=True, kw_only=True):
    """An accelerator: `sustained` is the share of short benchmarks' rates kept in training.

    Devices of one `generation` share what was not measured for each of them. `memory_share` is what
    kernels reach of the bandwidth (bytes/s); no kernel is shorter than `kernel_floor_ps`.
    `reserved_bytes` are contexts and communication buffers. `framework` names what its jobs are
    trained with where nobody says it. `sources` say where each number is from, see
    `stepsim.workload.model.evidence`.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    rates: Mapping[Precision, MatrixRate]
    attention: Mapping[str, AttentionRate]
    vector_rate: float = 0.0
    sustained: float = 1.0
    memory_share: float = 0.8
    kernel_floor_ps: int = 3_000_000
    reserved_bytes: int = 0
    watts: float | None = None
    price_per_hour: float | None = None
    topology: str | None = None
    generation: str = ""
    framework: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def bytes_per_s(self) -> float:
        """What kernels reach of the memory's bandwidth."""
        return self.memory_bandwidth * self.memory_share

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
