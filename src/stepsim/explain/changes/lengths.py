"""What documents of different lengths cost a profiled run, and what swapped microbatches save.

All of it is the run itself, replayed: only the work of microbatches differs, so ranks that are slow
stay slow, and the pipeline's bubbles are those of its own schedule.
"""

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import Entry, Share
from stepsim.explain.changes.made import Changes, ProfileChange, UntoldChange
from stepsim.explain.stragglers import mean_share
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.waits import Waits
from stepsim.measured.profile.works import MicrobatchWorks, longest_over_mean, microbatch_works
from stepsim.parallel.packers.balanced import swap_works

_SWAP = "swap-microbatches"


# `work_spread` is of a microbatch's work, `noise` of what is left of a compute. `longest_over_mean`
# is the mean of the steps, `swapped_over_mean` that once whole microbatches have changed replicas.
# `waiting` is the share of the steps that goes where all microbatches have equal work.
class UnequalLengths(Entry):
    """How unequal microbatches are: spreads are coefficients of variation.

    Work of the longest replica is over the mean.
    """

    work_spread: float
    noise: float
    longest_over_mean: float
    swapped_over_mean: float
    waiting: Share


def equal_times(waits: Waits, works: MicrobatchWorks) -> tuple[Ints, Ints]:
    """What operations of equal works take, and delays, in ps."""
    (own_ps,) = works.changed_ps(waits.own_ps, [_equal(works.works)])
    return own_ps, waits.delay_ps


def unequal_lengths(works: MicrobatchWorks, base_ps: Ints, equal_ps: Ints) -> UnequalLengths:
    """What unequal microbatches cost: steps as they ran, and with `equal_times`."""
    return UnequalLengths(
        work_spread=works.spread,
        noise=works.noise,
        longest_over_mean=float(longest_over_mean(works.works).mean()),
        swapped_over_mean=float(longest_over_mean(swap_works(works.works)).mean()),
        waiting=1.0 - mean_share(equal_ps, base_ps),
    )


def told_works(profile: Profile) -> MicrobatchWorks | str:
    """The works of a profile's microbatches; a text says what does not tell them."""
    try:
        return microbatch_works(profile)
    except PlanError as error:
        return str(error)


def length_changes(waits: Waits, works: MicrobatchWorks | str) -> Changes:
    """Whole microbatches swapped between replicas; at best all have equal work."""
    if isinstance(works, str):
        yield UntoldChange(name=_SWAP, why=works)
        return
    if works.works.shape[1] == 1:
        yield UntoldChange(name=_SWAP, why="one replica was traced")
        return
    moved = swap_works(works.works)
    own_ps, best_own_ps = works.changed_ps(waits.own_ps, (moved, _equal(works.works)))
    longest, then = (float(longest_over_mean(each).mean()) for each in (works.works, moved))
    yield ProfileChange(
        waits,
        _SWAP,
        "unequal lengths: whole microbatches change replicas, longest first; the replica with most "
        f"work has {then:.3f} times the mean in place of {longest:.3f}",
        own_ps,
        "lengths are known before the step, and the work that stages share is that of lengths",
        best_own_ps,
    )


def _equal(works: Floats) -> Floats:
    """Every microbatch with the mean work of its step."""
    return np.asarray(np.broadcast_to(works.mean(axis=(1, 2), keepdims=True), works.shape))
