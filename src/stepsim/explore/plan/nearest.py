"""What would do where no plan does: the same question with one thing changed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.step.plans import MOST_NPUS, SHORT_NAMES, PlanSpace

_MOST_DOUBLINGS = 12
_DEGREES = ("tp", "cp", "pp")

_Choose = Callable[[PlanSpace], str | None]
"""The plan of a space that would do, in words; None where none does."""


def what_would_do(space: PlanSpace, choose: _Choose) -> str:
    """What would do, of each kind the first: an option given up, other GPUs, another batch.

    Each starts with a semicolon.
    """
    found = []
    for changes in (_without(space), _other_sizes(space), _other_jobs(space)):
        for what, changed in changes:
            with suppress(StepsimError):
                if said := choose(changed):
                    found.append(f"; {what}: {said}")
                    break
    return "".join(found) or "; no other size, batch or option alone would do"


def _without(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    for name, values in space.fixed.items():
        rest = {other: each for other, each in space.fixed.items() if other != name}
        given = ",".join(map(str, values))
        yield f"without {SHORT_NAMES.get(name, name)}={given}", replace(space, fixed=rest)
    for name, most in space.most.items():
        rest_of = {other: each for other, each in space.most.items() if other != name}
        yield f"with {name} above {most}", replace(space, most=rest_of)


def _other_sizes(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    """Multiples of the degrees that are given, the nearest first, then twice as many and so on."""
    npus = max(space.npus)
    for count in _counts(npus, _given(space)):
        if count not in space.npus and 0 < count <= MOST_NPUS:
            yield f"on {count:,} GPUs", replace(space, npus=(count,))


def _given(space: PlanSpace) -> int:
    """The smallest product of the degrees that are given."""
    return prod(min(_asked(space, name)) for name in _DEGREES)


def _asked(space: PlanSpace, name: str) -> list[int]:
    """Values of an option that are given; 1 where none is."""
    return [int(str(each)) for each in space.fixed.get(name, (1,))]


def _counts(npus: int, multiple: int) -> Sequence[int]:
    power = 1 << npus.bit_length()
    near = {npus // multiple * multiple, -(-npus // multiple) * multiple, power // 2, power}
    doubled = [(power if npus & (npus - 1) else npus) << i for i in range(1, _MOST_DOUBLINGS)]
    return [*sorted(near - {npus}, key=lambda count: (abs(count - npus), count)), *doubled]


def _other_jobs(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    """The next batch that more replicas and larger microbatches divide, the next length."""
    samples, stages = (min(_asked(space, name)) for name in ("microbatch_size", "pp"))
    assert space.global_batch
    batch, replicas = space.global_batch, max(max(space.npus) // _given(space), 1)
    for of in sorted({samples, stages * samples, replicas * samples, replicas * stages * samples}):
        more = -(-batch // of) * of
        if more != batch:
            yield f"with a global batch of {more:,}", replace(space, global_batch=more)
    parts = 2 * max(_asked(space, "cp"))
    if longer := -space.sequence % parts:
        sequence = space.sequence + longer
        yield f"with sequences of {sequence:,} tokens", replace(space, sequence=sequence)
