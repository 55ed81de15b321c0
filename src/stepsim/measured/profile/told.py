"""Stages and phases of a pipeline whose program marked none, told by the order of its messages.

The first stage sends before it receives anything; any other first receives from the stage before
it. Between two sends of a middle stage lies one action, told by where the second one goes.
"""

from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.measured.profile.events import Profile


class Labels(Struct, frozen=True, kw_only=True, eq=False):
    """Phase, virtual stage and microbatch of every operation, and what told them.

    `pp` are the stages of the job where this is known otherwise than from the ranks.
    """

    phase: Ints
    stage: Ints
    microbatch: Ints
    how: str
    pp: int | None = None


class ByMessages(Struct, frozen=True, kw_only=True, eq=False):
    """The pipeline stage of every rank, and the labels of its operations."""

    stages: tuple[int, ...]
    labels: Labels


def told_by_messages(profile: Profile) -> ByMessages:
    """Raises TraceError that names what was not recorded."""
    raise TraceError(f"{profile.source}: stages are not known")
