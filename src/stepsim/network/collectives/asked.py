"""Algorithms asked for, kind by kind."""

from collections.abc import Sequence

from stepsim.base.errors import PlanError
from stepsim.network.collectives.algorithms import AlgorithmChoice, parse_algorithm
from stepsim.network.collectives.choices import carries_out
from stepsim.workload.rows import CollectiveKind


def parse_algorithms(texts: Sequence[str]) -> dict[CollectiveKind, AlgorithmChoice]:
    """Choices in `all_reduce=ring`, or in `ring`: for every collective that it can carry out.

    Later texts win. Raises PlanError for kinds and algorithms that do not exist or do not go
    together.
    """
    asked: dict[CollectiveKind, AlgorithmChoice] = {}
    for text in texts:
        name, equals, algorithm = text.rpartition("=")
        choice = parse_algorithm(algorithm)
        if equals:
            kinds = [_kind(text, name)]
            if not carries_out(kinds[0], choice):
                raise PlanError(f"algorithm is {text!r}: {choice} cannot carry out {kinds[0]}")
        else:
            every = (kind for kind in CollectiveKind if kind is not CollectiveKind.SEND_RECV)
            kinds = [kind for kind in every if carries_out(kind, choice)]
        asked |= dict.fromkeys(kinds, choice)
    return asked


def _kind(text: str, name: str) -> CollectiveKind:
    try:
        return CollectiveKind(name.strip())
    except ValueError:
        expected = ", ".join(CollectiveKind)
        raise PlanError(f"algorithm is {text!r}: expected one of {expected} before =") from None
