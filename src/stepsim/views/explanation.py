"""A training log beside its prediction, and what could make the difference."""

from collections.abc import Iterator

from stepsim.documents.table import Sheet, paths, table_of
from stepsim.runs.explained import LogExplanation, LogVerdict
from stepsim.runs.suspects import LogEvidence, LogSuspect
from stepsim.views.measured import left_out_words
from stepsim.views.words import range_words, seconds_words

_VERDICTS = {
    LogVerdict.INSIDE: "as expected",
    LogVerdict.SLOWER: "slow, {slow:.2f} x the prediction",
    LogVerdict.FASTER: "faster than expected",
    LogVerdict.IMPOSSIBLE: "impossible, above the peak: not this model, sequence, batch or GPU",
    LogVerdict.UNSTEADY: "not steady, from {first} to {last} over the log",
    LogVerdict.UNKNOWN: "no interval is known for such steps",
}
_NEAR = 0.15
_SUSPECTS = paths("suspect = name, step_s, worth:+.2%, explains, if = what")


def explanation_shown(found: LogExplanation) -> Sheet:
    """The answer, what counts of the log, and the suspects, the likeliest first."""
    rates = f"{found.tokens_per_s:,.0f} tokens/s per GPU   MFU {found.mfu:.1%}"
    measured = f"{seconds_words(found.measured_s)} per step measured   {rates}"
    first, last = map(seconds_words, found.trend_s or (0.0, 0.0))
    slow = found.measured_s / found.predicted_s
    said = _VERDICTS[found.verdict].format(slow=slow, first=first, last=last)
    yield f"{measured}   {_predicted(found)}: {said}"
    yield found.job
    yield " ".join(_counted(found))
    if period := found.period:
        extra = seconds_words(period.longer * found.measured_s)
        yield (
            f"every {period.every} steps +{extra}, {period.share:.1%} of the run: a checkpoint, an "
            "evaluation, the data loader, garbage collection"
        )
    if found.suspects:
        yield table_of("what could make the difference, simulated", found.suspects, _SUSPECTS)
        yield from _alike(found.suspects)
        yield from (f"look at {each.check}: {each.name}" for each in found.suspects[:3])
    else:
        yield "no usual suspect moves the prediction towards the log"
    if found.without_worth:
        yield f"worth nothing here: {', '.join(found.without_worth)}"


def _alike(suspects: tuple[LogSuspect, ...]) -> Iterator[str]:
    """What to say where several suspects explain the step, and the log speaks for all alike."""
    first = suspects[0]
    alike = [
        each.name
        for each in suspects
        if (each.evidence, each.is_contradicted) == (first.evidence, first.is_contradicted)
        and each.explains is not None
        and abs(each.explains - 1) < _NEAR
    ]
    if len(alike) > 1:
        yield f"each of these would explain it, and the log does not tell which: {', '.join(alike)}"
    elif first.evidence is LogEvidence.FOR:
        yield f"timers or memory in the log speak for {first.name}"


def _predicted(found: LogExplanation) -> str:
    """The predicted step with its interval."""
    lies = ", ".join(filter(None, (range_words(found), f"{found.error:+.1%}")))
    return f"{seconds_words(found.predicted_s)} predicted ({lies})"


def _counted(found: LogExplanation) -> Iterator[str]:
    """Which lines of the log count, and the rates of both."""
    yield f"{found.framework}: median of {found.steps} steps;"
    yield f"left out: {left_out_words(found.warm_up, found.out_of_line)}"
    if found.measured_tflops is not None and found.predicted_tflops is not None:
        yield f"  TFLOP/s per GPU {found.measured_tflops:.0f}, predicted"
        yield f"{found.predicted_tflops:.0f}"
