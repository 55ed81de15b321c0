"""What a shell offers when Tab is pressed in a value."""

from collections.abc import Callable, Iterable


def _choices(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
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


def _p2p_modes() -> Iterable[str]:
    from stepsim.parallel.p2p import P2PMode

    return P2PMode


def _sharings() -> Iterable[str]:
    from stepsim.engine.contention import Sharing

    return Sharing


def _stage_rows() -> Iterable[str]:
    from stepsim.parallel.stages import StageRows

    return StageRows


def _durations() -> Iterable[str]:
    from stepsim.validation.replay import Durations

    return Durations


def _figure_kinds() -> Iterable[str]:
    from stepsim.show.figures.sweep.views import FigureKind

    return FigureKind


figure_kinds = _choices(_figure_kinds)
topologies = _choices(_topologies)
schedules = _choices(_schedules)
collectives = _choices(_collectives)
p2p_modes = _choices(_p2p_modes)
sharings = _choices(_sharings)
stage_rows = _choices(_stage_rows)
durations = _choices(_durations)


def several(one: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Completes the last of several values that stand between commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in one(last)]

    return complete
