"""The largest differences of a predicted and a measured step, in plain words."""

from collections.abc import Iterable, Sequence

from stepsim.base.structs import Names
from stepsim.base.units import format_time_ps
from stepsim.explain.against import STAGE_MESSAGES, AgainstRow, StepPart
from stepsim.measured.profile.kernel_classes import KernelClass

_MOST = 3
# Differences of a smaller share of the step are not named where there are larger ones.
_NOTICED = 0.0005
# Waiting follows from something else that differs at least by this share of it.
_CAUSE = 0.01
# Rows whose prediction rests on rates that were measured.
_OF_RATES = frozenset(KernelClass)
# Ints that differ by a larger factor are of other work.
_FAR = 20.0
# Ints that differ by a smaller share are alike, in words.
_SAME = 0.02


def largest_differences(
    rows: Sequence[AgainstRow], step_ps: int, *, device: str, unfused: bool | None
) -> Names:
    """At most three sentences, the largest difference of the step first.

    `rows` are those of a name. `device` is what the prediction was made for. The measured attention
    is `unfused` and the predicted one is not, or the other way round; None where both are alike. Of
    equal steps what runs longer behind others is named.
    """
    ordered = ordered_differences(rows)
    large = [row for row in ordered if abs(row.difference_ps) >= _NOTICED * step_ps]
    return tuple(_words(row, device, unfused) for row in (large or ordered)[:_MOST])


def ordered_differences(rows: Iterable[AgainstRow]) -> list[AgainstRow]:
    """Rows that differ, the largest difference first.

    Waiting, and gaps that get shorter in a step that gets longer, follow from something else: they
    stand behind what may be their cause.
    """
    differ = [
        row for row in rows if row.difference_ps or row.predicted_run_ps != row.measured_run_ps
    ]
    whole = sum(row.difference_ps for row in differ)
    causes = [abs(row.difference_ps) for row in differ if not _follows(row, whole)]
    cause = max(causes, default=0)

    def order(row: AgainstRow) -> tuple[bool, int, int, str]:
        size = abs(row.difference_ps)
        hidden = abs(row.measured_run_ps - row.predicted_run_ps)
        return _follows(row, whole) and cause >= _CAUSE * size, -size, -hidden, row.name

    return sorted(differ, key=order)


def _follows(row: AgainstRow, whole_ps: int) -> bool:
    """Whether a difference follows from others, where the step differs by so much."""
    return row.part == StepPart.WAITING or (
        row.part == StepPart.GAPS and row.difference_ps * whole_ps < 0
    )


def _words(row: AgainstRow, device: str, unfused: bool | None) -> str:
    match StepPart(row.part):
        case StepPart.COMPUTE:
            return _compute_words(row, device, unfused)
        case StepPart.COMMUNICATION:
            return _communication_words(row)
        case StepPart.WAITING:
            return _more(row, f"waiting for {row.name}")
        case StepPart.COPIES | StepPart.GAPS:
            return _more(row, row.name)


def _compute_words(row: AgainstRow, device: str, unfused: bool | None) -> str:
    one_sided = _one_sided(row, f"{row.name} kernels")
    if one_sided:
        return one_sided
    ratio = row.measured_ps / row.predicted_ps
    difference = f"{format_time_ps(row.measured_ps)} instead of {format_time_ps(row.predicted_ps)}"
    if not 1 / _FAR < ratio < _FAR:
        return f"{row.name}: {difference}"
    allowed = f"the measured rates of {device} allow" if row.name in _OF_RATES else "predicted"
    if ratio >= 1:
        words = f"{row.name} {ratio:.2f} x slower than {allowed}: {difference}"
    else:
        words = f"{row.name} {1 / ratio:.2f} x faster than predicted: {difference}"
    if row.name == KernelClass.ATTENTION and unfused is not None:
        runs = "unfused" if unfused else "fused"
        words += f"; the trace runs the {runs} kernel{'s' * unfused}"
    return words


def _communication_words(row: AgainstRow) -> str:
    one_sided = _one_sided(row, row.name)
    if one_sided and not (row.predicted_run_ps and row.measured_run_ps):
        return one_sided
    words = f"{row.name}: {format_time_ps(row.measured_ps)} exposed"
    words += f" instead of {format_time_ps(row.predicted_ps)}"
    if not row.predicted_run_ps:
        return words
    ratio = row.measured_run_ps / row.predicted_run_ps
    if abs(ratio - 1) <= _SAME:
        hidden = "less" if row.difference_ps > 0 else "more"
        return f"{words}; its kernels run as long, {hidden} of them is hidden"
    slower = f"{ratio:.2f} x as long"
    waits = " (a message's wait is part of it)" if row.name.startswith(STAGE_MESSAGES) else ""
    return f"{words}; its kernels run {slower}{waits}"


def _one_sided(row: AgainstRow, name: str) -> str:
    """What only one of both steps has; empty where both have it."""
    if not row.predicted_ps and row.measured_ps:
        return f"{format_time_ps(row.measured_ps)} of {name} that the prediction does not have"
    if not row.measured_ps and row.predicted_ps:
        return f"no {name} in the recording: {format_time_ps(row.predicted_ps)} are predicted"
    return ""


def _more(row: AgainstRow, name: str) -> str:
    difference = abs(row.difference_ps)
    sign = "more" if row.difference_ps > 0 else "less"
    if not row.predicted_ps:
        return f"{format_time_ps(difference)} of {name} that the prediction does not have"
    return f"{format_time_ps(difference)} {sign} of {name} than predicted"
