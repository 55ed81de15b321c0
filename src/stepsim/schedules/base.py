"""What a pipeline schedule is: an ordered list of actions per rank, with no durations."""

from dataclasses import dataclass
from enum import StrEnum

from stepsim.errors import ScheduleError


class ActionKind(StrEnum):
    """Forward, full backward, input gradient, weight gradient of one microbatch in one stage."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRAD = "I"
    WEIGHT_GRAD = "W"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action: its virtual stage, the chunk of the rank that holds it, and the microbatch."""

    kind: ActionKind
    stage: int
    chunk: int
    microbatch: int

    @property
    def token(self) -> str:
        """Torch's notation, e.g. `2F0`."""
        return f"{self.stage}{self.kind}{self.microbatch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Virtual stages of `ranks * chunks`: chunk c of rank r is stage `c * ranks + r` (a loop)."""

    ranks: int
    chunks: int = 1

    @property
    def stages(self) -> int:
        """Virtual stages."""
        return self.ranks * self.chunks

    def stage(self, rank: int, chunk: int) -> int:
        """Virtual stage of a rank's chunk."""
        return chunk * self.ranks + rank

    def rank(self, stage: int) -> int:
        """Rank that holds a virtual stage."""
        return stage % self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`orders[r]` are the actions of pipeline rank r in execution order."""

    name: str
    placement: Placement
    microbatches: int
    orders: tuple[tuple[Action, ...], ...]

    def tokens(self) -> list[list[str]]:
        """The orders in torch's notation."""
        return [[action.token for action in order] for order in self.orders]


def check_shape(name: str, *, ranks: int, microbatches: int, chunks: int) -> None:
    """Raise ScheduleError unless all three are positive."""
    for field, value in (("ranks", ranks), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise ScheduleError(f"schedule {name}: {field} is {value}: expected at least 1")
