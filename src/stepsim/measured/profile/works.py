"""How unequal the microbatches of a profile are: the work that all stages of a microbatch share.

A rank's documents reach every stage of its pipeline, so that a long microbatch is long on all of
them; a slow rank, a slow stage and noise are seen on one stage alone. So work is what computes of
different stages have in common (one-factor analysis, whose loadings are fitted to the covariances
between stages: Harman and Jones, "Factor analysis by minimizing residuals", 1966). Where a job has
one stage, forwards and backwards stand for two.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints, bins, row_numbers
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, Numbers
from stepsim.measured.profile.events import Profile, same
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

_ROUNDS = 200
# Work that stages share counts where it is as many standard errors above that of pure noise.
_STANDARD_ERRORS = 3.0
# A microbatch has at least so much of the mean's work: estimates of little work may be below 0.
_LEAST_WORK = 0.01


class MicrobatchWorks(Noun, eq=False):
    """Work of a profile's microbatches over the mean's: of shape (steps, replicas, microbatches).

    `works` are the best guesses of the microbatches as they ran, nearer to 1 than the truth where
    noise is large. `spread` is the coefficient of variation of the work itself, `noise` that of
    what is left of a compute. A microbatch of work w takes a compute of series k `1 + share[k] * (w
    - 1)` of its mean time; `series` and `cell` are those of the operations that work reaches, which
    are `held`, and cells count through `works`.
    """

    source: str
    works: Floats
    spread: float
    noise: float
    share: Floats
    held: Ints
    series: Ints
    cell: Ints

    def changed_ps(self, own_ps: Ints, several: Iterable[Floats]) -> Iterator[Ints]:
        """What operations take where microbatches have other works than they had, for each of some.

        A rank's computes of a kind get longer by the same time for the same work.
        """
        replica = self.cell // self.works.shape[2] % self.works.shape[1]
        rank, had = same(self.series, replica), own_ps[self.held]
        mean = (np.bincount(rank, had) / np.bincount(rank))[rank]
        for works in several:
            longer = self.share[self.series] * (works - self.works).ravel()[self.cell] * mean
            changed = own_ps.copy()
            changed[self.held] = np.maximum(np.rint(had + longer), 0).astype(np.int64)
            yield changed


def longest_over_mean(works: Floats) -> Floats:
    """Work of the rank with most of it over the mean: of (steps, ranks, microbatches), by step."""
    of_ranks = works.sum(axis=2)
    return np.asarray(of_ranks.max(axis=1) / of_ranks.mean(axis=1))


def microbatch_works(profile: Profile) -> MicrobatchWorks:
    """The works of a profile's microbatches.

    A replica that is slower in all steps and a step that is slower on all replicas have no more
    work, as far as they are beyond the chance of drawn documents. Raises PlanError naming what the
    profile does not tell.
    """
    held = _held(profile)
    series, stage = _series(profile, held)
    cell, shape = _cells(profile, held)
    times = _table(profile, held, series, cell, shape)
    mean_ps = times.mean(axis=(1, 2, 3))
    deviations = _without_slow_ranks(times / mean_ps[:, None, None, None], stage)
    share, left = _factor(deviations.reshape(len(times), -1), stage, mean_ps)
    guess, error = _guesses(deviations, share, left)
    square = float((guess**2).mean())
    sure = max(1.0 - error / square, 0.0) if square else 0.0
    return MicrobatchWorks(
        source=profile.source,
        works=np.maximum(1.0 + sure * guess, _LEAST_WORK),
        spread=float(np.sqrt(sure * square)),
        noise=float(np.sqrt(np.median(left))),
        share=share,
        held=held,
        series=series,
        cell=cell,
    )


def _held(profile: Profile) -> Ints:
    """Places of the computes of microbatches; raises PlanError where the profile names none."""
    events = profile.events
    told = {
        "microbatches": events.microbatch != UNKNOWN,
        "forwards and backwards": events.phase != TaskPhase.UNKNOWN,
        "stages": profile.column_of_ranks("stage") != UNKNOWN,
        "replicas": profile.column_of_ranks("replica") != UNKNOWN,
    }
    held: Bools = events.of_kind(TaskKind.COMPUTE)
    for name, known in told.items():
        held = held & known
        if not held.any():
            raise PlanError(f"the {profile.format} names no {name} of computes")
    return np.flatnonzero(held)


def _series(profile: Profile, held: Ints) -> tuple[Ints, Ints]:
    """A number for computes of one chunk and phase, and the stage of each such series.

    Of a single stage the phase is taken for it.
    """
    events, stage = profile.events, profile.column_of_ranks("stage")[held]
    number = same(stage, events.chunk[held], events.phase[held])
    first, _ = row_numbers(number[:, None])
    apart = stage if np.ptp(stage) else events.phase[held]
    if not np.ptp(apart[first]):
        raise PlanError("the run has one stage and one phase: work cannot be told from noise")
    return number, apart[first]


def _cells(profile: Profile, held: Ints) -> tuple[Ints, tuple[int, int, int]]:
    """The microbatch of every compute among those of all steps and replicas, and their number."""
    events = profile.events
    columns = (events.step, profile.column_of_ranks("replica"), events.microbatch)
    found = [same(column[held]) for column in columns]
    steps, replicas, microbatches = (bins(place) for place in found)
    shape = steps, replicas, microbatches
    return np.asarray(np.ravel_multi_index(found, shape), np.int64), shape


def _table(
    profile: Profile, held: Ints, series: Ints, cell: Ints, shape: tuple[int, int, int]
) -> Floats:
    """Times in ps of (series, steps, replicas, microbatches); PlanError where one is missing."""
    count, size = bins(series), int(np.prod(shape))
    place = series * size + cell
    sums = np.bincount(place, profile.events.duration_ps[held], count * size)
    if not (sums > 0).all():
        raise PlanError("not every stage ran every microbatch of every replica and step")
    return sums.astype(np.float64).reshape(count, *shape)


def _without_slow_ranks(relative: Floats, stage: Ints) -> Floats:
    """Deviations from the mean without what a rank has and other stages of its replica have not.

    What they share is the lower median of the stages: of two, a slow one is taken for slow.
    """
    of_rank = relative.mean(axis=(1, 3), keepdims=True)
    of_stage = [of_rank[stage == each].mean(axis=0) for each in np.unique(stage)]
    shared = np.quantile(of_stage, 0.5, axis=0, method="lower")
    prompt = relative / of_rank * shared
    return np.asarray(prompt / prompt.mean(axis=(1, 2, 3), keepdims=True) - 1.0)


def _factor(deviations: Floats, stage: Ints, mean_ps: Floats) -> tuple[Floats, Floats]:
    """How much of the shared work each series has, 1 for a mean compute, and its rest's variance.

    With no more in common than noise has, none has any, and the rest is all there is.
    """
    size = deviations.shape[1]
    covariance = deviations @ deviations.T / size
    variance = np.diag(covariance).copy()
    apart = stage[:, None] != stage[None, :]
    shared = float(covariance[apart].mean())
    chance = float(np.sqrt(2.0 * np.outer(variance, variance)[apart].sum() / size)) / apart.sum()
    if shared <= _STANDARD_ERRORS * chance:
        return np.zeros(len(stage)), variance
    loading = np.full(len(stage), np.sqrt(shared))
    for _ in range(_ROUNDS):
        fitted = (covariance * apart) @ loading / (apart @ loading**2)
        loading = np.sqrt(loading * np.maximum(fitted, 1e-6 * loading))
    left = np.maximum(variance - loading**2, 1e-3 * variance)
    return loading / np.average(loading, weights=mean_ps), left


def _guesses(deviations: Floats, share: Floats, left: Floats) -> tuple[Floats, float]:
    """Work of each microbatch over the mean's, less 1, and the variance of its error.

    Series count by what they tell of it. What is slow beyond chance is taken off.
    """
    weight = np.divide(share, left, out=np.zeros_like(share), where=left > 0)
    told = float(weight @ share)
    if not told:
        return np.zeros(deviations.shape[1:]), 0.0
    guess = np.tensordot(weight / told, deviations, axes=1)
    for others in ((0, 2), (1, 2)):
        slow, part = _beyond_chance(guess, others)
        guess = guess - part * slow
    return guess, 1.0 / told


def _beyond_chance(guess: Floats, others: Numbers) -> tuple[Floats, float]:
    """Means over some axes, less that of all, and the part of them that is beyond chance.

    That is 0 where the means differ no more than means of so many equal draws do.
    """
    mean = guess.mean(axis=others, keepdims=True)
    count, drawn = mean.size, guess.size // mean.size
    slow = np.asarray(mean - guess.mean())
    if count == 1 or drawn == 1:
        return slow, 0.0
    within = float(((guess - mean) ** 2).sum()) / (guess.size - count) / drawn
    between = float((slow**2).sum()) / (count - 1)
    least = within * (1.0 + _STANDARD_ERRORS * float(np.sqrt(2.0 / (count - 1))))
    return slow, 1.0 - within / between if between > least else 0.0
