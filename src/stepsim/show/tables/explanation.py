"""A training log beside its prediction, and what could make the difference."""

from collections.abc import Iterator

from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.runs.explained import LogExplanation, LogSuspect, LogVerdict
from stepsim.show.tables.measured import numbers_words
from stepsim.show.tables.model import ERROR, LONG, SHARE, TEXT, TIME, Shown, table_of

_VERDICTS = {
    LogVerdict.INSIDE: "inside the interval",
    LogVerdict.SLOWER: "slower than the interval",
    LogVerdict.FASTER: "faster than the interval",
    LogVerdict.UNKNOWN: "no interval is known for such steps",
}
_SUSPECTS = {
    "suspect": TEXT.of("name"),
    "step": TIME.of(lambda each: round(each.step_s * PS_PER_S)),
    "worth": ERROR.of("worth"),
    "explains": SHARE.of("explains"),
    "if": LONG.of("what"),
}


def explanation_shown(found: LogExplanation) -> Iterator[Shown]:
    """The answer, what counts of the log, and the suspects, the likeliest first."""
    yield f"{_time(found.measured_s)} per step measured   {_predicted(found)}: {_said(found)}"
    yield found.job
    yield " ".join(_counted(found))
    if found.suspects:
        yield table_of("what could make the difference, simulated", found.suspects, _SUSPECTS)
        yield from (f"look at {each.check}: {each.name}" for each in _first(found))
    else:
        yield "no usual suspect moves the prediction towards the log"
    if found.without_worth:
        yield f"worth nothing here: {', '.join(found.without_worth)}"


def _first(found: LogExplanation) -> tuple[LogSuspect, ...]:
    return found.suspects[:3]


def _said(found: LogExplanation) -> str:
    return _VERDICTS[found.verdict]


def _predicted(found: LogExplanation) -> str:
    """The predicted step with its interval."""
    predicted = f"{_time(found.predicted_s)} predicted"
    if found.low_s is None or found.high_s is None:
        return f"{predicted} ({found.error:+.1%})"
    return f"{predicted} ({_time(found.low_s)} to {_time(found.high_s)}, {found.error:+.1%})"


def _counted(found: LogExplanation) -> Iterator[str]:
    """Which lines of the log count, and the rates of both."""
    yield f"{found.framework}: median of {found.steps} steps;"
    left = {"warm-up": found.warm_up, "out of line": found.out_of_line}
    texts = [f"{name} {numbers_words(each)}" for name, each in left.items() if each]
    yield f"left out: {', '.join(texts) or 'nothing'}"
    if found.measured_tflops is not None and found.predicted_tflops is not None:
        yield f"  TFLOP/s per GPU {found.measured_tflops:.0f}, predicted"
        yield f"{found.predicted_tflops:.0f}"


def _time(seconds: float) -> str:
    return format_time_ps(round(seconds * PS_PER_S))
