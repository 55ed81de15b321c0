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
    """A difference in words: what only one of both steps has, or how both differ."""
    part = StepPart(row.part)
    name = {
        StepPart.COMPUTE: f"{row.name} kernels",
        StepPart.WAITING: f"waiting for {row.name}",
    }.get(part, row.name)
    measured, predicted = map(format_time_ps, (row.measured_ps, row.predicted_ps))
    if not (part is StepPart.COMMUNICATION and row.predicted_run_ps and row.measured_run_ps):
        if not row.predicted_ps and row.measured_ps:
            return f"{measured} of {name} that the prediction does not have"
        if not row.measured_ps and row.predicted_ps:
            return f"no {name} in the recording: {predicted} are predicted"
    times = f"{measured} instead of {predicted}"
    if part is StepPart.COMPUTE:
        return _compute_words(row, times, device, unfused)
    if part is StepPart.COMMUNICATION:
        return _communication_words(row, f"{measured} exposed instead of {predicted}")
    sign = "more" if row.difference_ps > 0 else "less"
    return f"{format_time_ps(abs(row.difference_ps))} {sign} of {name} than predicted"


def _compute_words(row: AgainstRow, times: str, device: str, unfused: bool | None) -> str:
    """How much slower or faster kernels of a class are than predicted."""
    ratio = row.measured_ps / row.predicted_ps
    if not 1 / _FAR < ratio < _FAR:
        return f"{row.name}: {times}"
    allowed = f"the measured rates of {device} allow" if row.name in _OF_RATES else "predicted"
    faster = f"{1 / ratio:.2f} x faster than predicted"
    pace = f"{ratio:.2f} x slower than {allowed}" if ratio >= 1 else faster
    words = f"{row.name} {pace}: {times}"
    if row.name == KernelClass.ATTENTION and unfused is not None:
        runs = "unfused" if unfused else "fused"
        words += f"; the trace runs the {runs} kernel{'s' * unfused}"
    return words


def _communication_words(row: AgainstRow, times: str) -> str:
    """How much longer communication is seen, and how much longer its kernels run."""
    words = f"{row.name}: {times}"
    if not row.predicted_run_ps:
        return words
    ratio = row.measured_run_ps / row.predicted_run_ps
    if abs(ratio - 1) <= _SAME:
        hidden = "less" if row.difference_ps > 0 else "more"
        return f"{words}; its kernels run as long, {hidden} of them is hidden"
    waits = " (a message's wait is part of it)" if row.name.startswith(STAGE_MESSAGES) else ""
    return f"{words}; its kernels run {ratio:.2f} x as long{waits}"
