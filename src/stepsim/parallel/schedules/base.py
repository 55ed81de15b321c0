"""What a pipeline schedule is: an ordered list of actions per rank, with no durations."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from stepsim.base.errors import ScheduleError, bad_value
from stepsim.base.structs import Noun

if TYPE_CHECKING:
    from stepsim.base.arrays import Ints
    from stepsim.parallel.schedules.order import Order

_Number = TypeVar("_Number", int, "Ints")


class ActionKind(StrEnum):
    """Forward, full backward, input gradient, weight gradient of one microbatch in one stage."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRAD = "I"
    WEIGHT_GRAD = "W"


class Action(Noun):
    """One action: its virtual stage, the chunk of the rank that holds it, and the microbatch."""

    kind: ActionKind
    stage: int
    chunk: int
    microbatch: int

    @property
    def token(self) -> str:
        """Torch's notation, e.g. `2F0`."""
        return f"{self.stage}{self.kind}{self.microbatch}"

    def parts(self) -> tuple["Action", ...]:
        """The single action, as a tuple of one."""
        return (self,)


class FusedPair(Noun):
    """A forward and a backward of different microbatches that run as one."""

    forward: Action
    backward: Action

    @property
    def token(self) -> str:
        """Torch's notation, e.g. `(0F4;3B1)OVERLAP_F_B`."""
        return f"({self.forward.token};{self.backward.token})OVERLAP_F_B"

    def parts(self) -> tuple[Action, ...]:
        """The forward and the backward of the pair."""
        return self.forward, self.backward


OrderEntry = Action | FusedPair
"""What a rank runs as one."""


class PlacementKind(StrEnum):
    """How virtual stages lie on ranks.

    `loop`: stage s on rank s mod P. `v`: two chunks, down the ranks and back up. `bidirectional`:
    P stages, held twice, from both ends (DualPipe).
    """

    LOOP = "loop"
    V = "v"
    BIDIRECTIONAL = "bidirectional"


class Placement(Noun):
    """Which rank holds which virtual stage; `microbatches` matter where they enter at both ends."""

    ranks: int
    chunks: int = 1
    kind: PlacementKind = PlacementKind.LOOP
    microbatches: int = 1

    @property
    def stages(self) -> int:
        """Virtual stages of the model."""
        return self.ranks if self.kind is PlacementKind.BIDIRECTIONAL else self.ranks * self.chunks

    def stage(self, rank: int, chunk: int) -> int:
        """Virtual stage of a rank's chunk."""
        match self.kind:
            case PlacementKind.LOOP:
                return chunk * self.ranks + rank
            case PlacementKind.V:
                return rank if chunk == 0 else 2 * self.ranks - 1 - rank
            case PlacementKind.BIDIRECTIONAL:
                upper = rank >= self.ranks // 2
                return rank if (chunk == 1) == upper else self.ranks - 1 - rank

    def rank(self, stage: _Number, microbatch: _Number | int = 0) -> _Number:
        """Rank that runs a virtual stage for a microbatch; the same of columns."""
        match self.kind:
            case PlacementKind.LOOP:
                return stage - stage // self.ranks * self.ranks  # quicker than % for columns
            case PlacementKind.V:
                return stage + (stage >= self.ranks) * (2 * self.ranks - 1 - 2 * stage)
            case PlacementKind.BIDIRECTIONAL:
                far = microbatch >= self.microbatches // 2
                return stage + far * (self.ranks - 1 - 2 * stage)


class Runtime(StrEnum):
    """Whose pipeline runtime runs a schedule: it decides when messages are posted."""

    MEGATRON = "megatron"
    TORCH = "torch"


class Schedule(Noun, dict=True):
    """`orders[r]` is what pipeline rank r runs, in order.

    `warm_up[r]` forwards of it come before its steady state, whose first backward follows one
    forward more; empty where a schedule has none.
    `fills_once`: with even stages it is idle only while the pipeline fills and drains.
    """

    name: str
    placement: Placement
    microbatches: int
    orders: tuple[Sequence[OrderEntry], ...]
    warm_up: tuple[int, ...] = ()
    runtime: Runtime = Runtime.TORCH
    fills_once: bool = False

    @property
    def label(self) -> str:
        """The name, with the chunks where a rank has several, e.g. `interleaved:4`."""
        chunks = self.placement.chunks
        return f"{self.name}:{chunks}" if chunks > 1 else self.name

    @property
    def splits_backward(self) -> bool:
        """Whether some backward runs its weight gradients apart from its input gradients."""
        return any(order.runs(ActionKind.WEIGHT_GRAD).any() for order in self.columns)

    @property
    def megatron(self) -> bool:
        """Whether Megatron-LM's runtime runs it."""
        return self.runtime is Runtime.MEGATRON

    @property
    def has_pairs(self) -> bool:
        """Whether some forward and backward run as one."""
        return any(order.kind.shape[1] > 1 for order in self.columns)

    @cached_property
    def columns(self) -> "tuple[Order, ...]":
        """The orders as columns."""
        from stepsim.parallel.schedules.order import Order

        return tuple(map(Order.of, self.orders))

    def tokens(self) -> list[list[str]]:
        """The orders in torch's notation."""
        return [[entry.token for entry in order] for order in self.orders]

    def actions(self, rank: int) -> Iterator[Action]:
        """The actions of a rank, fused pairs taken apart."""
        for entry in self.orders[rank]:
            yield from entry.parts()


_MAX_FORWARDS = 1 << 22


def check_shape(
    name: str,
    *,
    ranks: int,
    microbatches: int,
    chunks: int,
    held: int = 0,
    more: str = "",
) -> None:
    """Raise ScheduleError unless all three are positive and their product is not too large.

    `held` is the only number of chunks that it has (0: any), and `more` says who has others.
    """
    for field, value in (("ranks", ranks), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise ScheduleError(f"schedule {name}: {field} is {value}: expected at least 1")
    if ranks * microbatches * chunks > _MAX_FORWARDS:
        raise ScheduleError(
            f"schedule {name}: ranks * microbatches * chunks is {ranks * microbatches * chunks}: "
            f"expected at most {_MAX_FORWARDS}"
        )
    if held and chunks != held:
        raise ScheduleError(bad_value(f"schedule {name}", "chunks", chunks, f"{held}{more}"))
