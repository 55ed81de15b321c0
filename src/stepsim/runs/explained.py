"""A training log against its prediction: inside the interval or not, and what could be the cause.

The usual suspects are settings and conditions that a log does not show, each with its worth: the
step simulated with it alone changed. Those stand first whose step is nearest to the measured one.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import Count, Document, Names, Numbers, Seconds, Share, replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.report import Report
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.files.load import read_model
from stepsim.files.models.launch import with_launch
from stepsim.files.traces.logged_jobs import LoggedJob, read_logged_job
from stepsim.files.traces.step_lines import read_step_log
from stepsim.measured.step_log import LogPeriod, StepLog
from stepsim.options import ALIASES
from stepsim.runs.suspects import LogEvidence, LogSuspect, Suspects, held_bytes
from stepsim.step.job import held_degrees
from stepsim.step.prepared import prepare
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike

# Suspects that change the step by a smaller share are worth nothing: a log would not show them.
#
# It is chosen, not fitted. Half of the steps in Optimus's logs of A40 are more than 2.1 to 4.1 %
# off their median, so that the mean of 250 of the steadiest is still uncertain by 0.2 %.
_LEAST_WORTH = 0.002
_NEAR_GAP = 0.15
# A log's count of operations that differs by more is another model or another way to count.
_FLOPS_APART = 0.1


class LogVerdict(StrEnum):
    """Where a measured step lies beside the interval of its prediction."""

    INSIDE = "inside"
    SLOWER = "slower"
    FASTER = "faster"
    IMPOSSIBLE = "impossible"
    UNSTEADY = "unsteady"
    UNKNOWN = "unknown"


class LogExplanation(Document):
    """`explain --json`: a log's steady step beside its prediction, and the usual suspects.

    `error` is predicted over measured, minus 1. Four of five steps of this kind are between `low_s`
    and `high_s`; None where nobody knows. TFLOP/s are those of a device: as the log counts them,
    and as stepsim does at the predicted step. `steps` lines of the log count; `warm_up` and
    `out_of_line` are numbers of steps that do not. `without_worth` are suspects that change
    nothing here.
    """

    source: str
    framework: str
    job: str
    verdict: LogVerdict
    measured_s: Seconds
    predicted_s: Seconds
    low_s: Seconds | None
    high_s: Seconds | None
    error: Share
    tokens_per_s: Annotated[float, Meta(description="of a GPU, as measured")]
    mfu: Annotated[float, Meta(description="as measured")]
    trend_s: Annotated[
        tuple[Seconds, Seconds] | None, Meta(description="first and last step, where they drift")
    ]
    period: Annotated[LogPeriod | None, Meta(description="slow steps that come back regularly")]
    measured_tflops: float | None
    predicted_tflops: float | None
    steps: Count
    warm_up: Numbers
    out_of_line: Numbers
    suspects: tuple[LogSuspect, ...]
    without_worth: Names
    warnings: Annotated[Names, Meta(description="what was assumed")]


def explained_log(
    path: Path,
    typed: Mapping[str, object],
    *,
    config: str | Path | None = None,
    plan_file: Path | None = None,
    topology: "TopologyLike | None" = None,
    numbers: Mapping[str, object] = {},
    comm_source: str = "",
    line: str | None = None,
    suspects: bool = True,
) -> LogExplanation:
    """Read a log and what it says of its job, and explain it; without `suspects` only judge it.

    `typed` are options of a step, by name as people type them: they come before those of a
    `plan_file`, and these before those of the log. `config` names the model where the log does not,
    or another one. Raises TraceError for a log that cannot be read, WorkloadError where nobody says
    the model, PlanError where nobody says the GPUs, and the errors of `prepare`.
    """
    log = read_step_log(path, line)
    job = read_logged_job(path, log.form)
    model = _model_of(path, job, config)
    given = {ALIASES.get(name, name): value for name, value in typed.items() if value is not None}
    said = dict(job.options)
    if plan_file:
        planned = with_launch(replace(model, asked={}), plan_file)
        said |= planned.asked
    if "microbatches" in given:
        said.pop("global_batch", None)
    inputs = read_inputs(
        model, topology, {**said, **given}, comm_source=comm_source, numbers=numbers
    )
    known = {*model.asked, *said, *given}
    return _explain(log, inputs, known=known, with_suspects=suspects)


def _model_of(path: Path, job: LoggedJob, config: str | Path | None) -> Model:
    """The model of a file that was named, with the log's plan, else that of the log."""
    if config is None:
        if job.model is None:
            raise WorkloadError(
                f"{path}: the log does not say its model: expected --config with a public name, a "
                "config.json, or the framework's arguments"
            )
        return job.model
    named = read_model(config)
    logged = job.model.asked if job.model else {}
    return replace(named, asked={**named.asked, **logged})


def _explain(
    log: StepLog,
    job: StepInputs,
    *,
    known: Collection[str],
    with_suspects: bool,
) -> LogExplanation:
    """Predict the step of a log, and simulate the usual suspects.

    `known` are the options that the log says, or that were given.
    """
    if job.options.npus is None:
        raise PlanError(f"{log.source}: the log does not say its GPUs: expected --gpus")
    degrees, said = held_degrees(job)
    job = job.asking(*said, **degrees)
    ready = prepare(job)
    report = ready.simulated(weigh=True).report
    rates = report.throughput
    if rates is None:
        raise WorkloadError(f"{log.source}: the predicted step takes no time")
    tokens = round(rates.global_batch * rates.sequence / report.npus)
    measured = log.median_ps(tokens, rates.global_batch) / PS_PER_S
    predicted = report.step_time_ps / PS_PER_S
    trend = log.trend
    drift = None if trend is None else (measured * trend[0], measured * trend[1])
    measured = measured if drift is None else drift[0]
    mfu = rates.mfu * predicted / measured
    beside = Suspects(
        job=job,
        said=known,
        predicted=predicted,
        measured=measured,
        memory=held_bytes(ready),
        log=log,
    )
    suspects = [*beside.simulated()] if with_suspects else []
    return LogExplanation(
        source=log.source,
        framework=log.form,
        job=_job_words(report, rates),
        verdict=_verdict(measured, rates.low_s, rates.high_s, mfu, steady=drift is None),
        measured_s=measured,
        predicted_s=predicted,
        low_s=rates.low_s,
        high_s=rates.high_s,
        error=predicted / measured - 1,
        tokens_per_s=tokens / measured,
        mfu=mfu,
        trend_s=drift,
        period=log.period,
        measured_tflops=log.steady_tflops,
        predicted_tflops=rates.model_tflops,
        steps=len(log.steady),
        warm_up=log.warm_up,
        out_of_line=log.out_of_line,
        suspects=tuple(_ordered(suspects, predicted, measured)),
        without_worth=tuple(each.name for each in suspects if abs(each.worth) < _LEAST_WORTH),
        warnings=(*report.said, *_counted_otherwise(log, rates, predicted, measured)),
    )


def _job_words(report: Report, rates: Throughput) -> str:
    """What was predicted, in a line."""
    degrees = " ".join(f"{name} {size}" for name, size in report.plan.items())
    batch = f"batch {rates.global_batch:,} x {rates.sequence:,} tokens"
    network = f"{rates.device} ({report.topology})"
    return f"{report.workload} on {report.npus:,} {network}: {degrees}, {batch}"


def _verdict(
    measured: float, low: float | None, high: float | None, mfu: float, *, steady: bool
) -> LogVerdict:
    if mfu > 1:
        return LogVerdict.IMPOSSIBLE
    if not steady:
        return LogVerdict.UNSTEADY
    if low is None or high is None:
        return LogVerdict.UNKNOWN
    if measured > high:
        return LogVerdict.SLOWER
    return LogVerdict.FASTER if measured < low else LogVerdict.INSIDE


def _ordered(found: list[LogSuspect], predicted: float, measured: float) -> list[LogSuspect]:
    """Suspects that move the step towards the measured one, the likeliest first.

    Those that explain nearly all come before others, then those that the log speaks for, settings
    before sizes, and the most usual size; those that the log contradicts come last.
    """
    near = _NEAR_GAP * abs(measured - predicted)
    slower = measured >= predicted
    towards = [
        each for each in found if abs(each.worth) >= _LEAST_WORTH and (each.worth > 0) is slower
    ]

    def key(each: LogSuspect) -> tuple[float, ...]:
        apart = abs(each.step_s - measured)
        explains = each.is_solved or apart <= near
        return (
            each.is_contradicted,
            each.evidence is LogEvidence.AGAINST,
            not explains,
            each.evidence is not LogEvidence.FOR,
            each.is_solved,
            each.odd if explains else 0.0,
            0.0 if each.is_solved else apart,
        )

    return sorted(towards, key=key)


def _counted_otherwise(
    log: StepLog, rates: Throughput, predicted: float, measured: float
) -> Iterator[str]:
    """What to say where the log counts other operations in a step than stepsim does."""
    counted = log.steady_tflops
    if counted is None:
        return
    ours = rates.model_tflops * predicted
    ratio = counted * measured / ours
    if abs(ratio - 1) > _FLOPS_APART:
        yield (
            f"{log.source}: {log.form} counts {ratio:.2f} times as many operations in a step: "
            "another model or batch, or another way to count (causal attention, recomputation)"
        )
