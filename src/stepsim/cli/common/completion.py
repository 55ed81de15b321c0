"""What a shell offers when Tab is pressed in a value."""

from collections.abc import Callable, Iterable


def choices(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes names that are looked up when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        return sorted(name for name in names() if name.startswith(incomplete))

    return complete


def _topologies() -> Iterable[str]:
    from stepsim.files.shipped import topology_names

    return topology_names()


def _schedules() -> Iterable[str]:
    from stepsim.parallel.schedules import BUILDERS

    return BUILDERS


def _collectives() -> Iterable[str]:
    from stepsim.workload.rows import CollectiveKind

    return CollectiveKind


def _durations() -> Iterable[str]:
    from stepsim.explain.runs.replay import Durations

    return Durations


def _figure_kinds() -> Iterable[str]:
    from stepsim.show.figures.sweep import FIGURE_KINDS

    return FIGURE_KINDS


figure_kinds = choices(_figure_kinds)
topologies = choices(_topologies)
schedules = choices(_schedules)
collectives = choices(_collectives)
durations = choices(_durations)


def several(one: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Completes the last of several values that stand between commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in one(last)]

    return complete
