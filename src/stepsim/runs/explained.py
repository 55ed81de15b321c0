"""A training log against its prediction: inside the interval or not, and what could be the cause.

The usual suspects are settings and conditions that a log does not show, each with its worth: the
step simulated with it alone changed. Those stand first whose step is nearest to the measured one.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

from stepsim.base.errors import PlanError, StepsimError, WorkloadError
from stepsim.base.structs import Count, Document, Entry, Names, Seconds, Share, replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.report import Report
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.files.load import read_model, with_numbers
from stepsim.files.models.launch import with_launch
from stepsim.files.traces.logged_jobs import LoggedJob, read_logged_job
from stepsim.files.traces.step_lines import read_step_log
from stepsim.measured.step_log import StepLog
from stepsim.network.topology import Topology
from stepsim.options import ALIASES, OPTIONS, StepOptions
from stepsim.step.inputs import held_degrees, make_work
from stepsim.step.simulate import simulate_step
from stepsim.workload.model.choices import (
    AttentionKernel,
    ExpertDispatch,
    PipelineOrder,
    Precision,
    Recompute,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike

_LEAST_WORTH = 0.002
"""Suspects that change the step by a smaller share are worth nothing: a log would not show them.

It is chosen, not fitted. Half of the steps in Optimus's logs of A40 are more than 2.1 to 4.1 % off
their median, so that the mean of 250 of the steadiest is still uncertain by 0.2 %.
"""
_SLOW = 1.1
_SKEW = 1.3
_LATE = 4
_NO_NUMBERS: Mapping[str, object] = MappingProxyType({})
_FLOPS_APART = 0.1
"""A log's count of operations that differs by more is another model or another way to count."""


class LogVerdict(StrEnum):
    """Where a measured step lies beside the interval of its prediction."""

    INSIDE = "inside"
    SLOWER = "slower"
    FASTER = "faster"
    UNKNOWN = "unknown"


class LogSuspect(Entry, frozen=True, kw_only=True):
    """Something that a log may not show: `what` would be, and what `check` would tell.

    `is_contradicted` where the log or the options say otherwise. `step_s` is the predicted step
    with it, `worth` the share of the predicted step that it adds, and `explains` the share of the
    gap between prediction and log that this is, None without a gap.
    """

    name: str
    what: str
    check: str
    is_contradicted: bool
    step_s: Seconds
    worth: Share
    explains: Share | None


class LogExplanation(Document, frozen=True, kw_only=True):
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
    measured_tflops: float | None
    predicted_tflops: float | None
    steps: Count
    warm_up: tuple[int, ...]
    out_of_line: tuple[int, ...]
    suspects: tuple[LogSuspect, ...]
    without_worth: Names
    warnings: Annotated[Names, Meta(description="what was assumed")]


class _Change(Struct, frozen=True, kw_only=True):
    """A suspect before it is simulated: other options, or other numbers of the topology.

    `now` is what the prediction has in place of `what`, empty where that needs no words.
    """

    name: str
    what: str
    check: str
    now: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, object] = field(default_factory=dict)


def explained_log(
    path: Path,
    typed: Mapping[str, object],
    *,
    config: str | Path | None = None,
    plan_file: Path | None = None,
    topology: "TopologyLike | None" = None,
    numbers: Mapping[str, object] = _NO_NUMBERS,
    comm_source: str = "",
) -> LogExplanation:
    """Read a log and what it says of its job, and explain it.

    `typed` are options of a step, by name as people type them: they come before those of a
    `plan_file`, and these before those of the log. `config` names the model where the log does not,
    or another one. Raises TraceError for a log that cannot be read, WorkloadError where nobody says
    the model, PlanError where nobody says the GPUs, and the errors of `simulate_step`.
    """
    log = read_step_log(path)
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
    return _explain(log, model, inputs, known={*model.asked, *said, *given})


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
    log: StepLog, model: Model, inputs: StepInputs, *, known: Collection[str] = ()
) -> LogExplanation:
    """Predict the step of a log, and simulate the usual suspects.

    `known` are the options that the log says, or that were given.
    """
    topology, options = inputs.topology, inputs.options
    if options.npus is None:
        raise PlanError(f"{log.source}: the log does not say its GPUs: expected --gpus")
    degrees, said = held_degrees(model, topology, options)
    options, notes = replace(options, **degrees), (*inputs.notes, *said)
    report = simulate_step(model, topology, options, notes=notes, weigh=True).report
    rates = report.throughput
    if rates is None:
        raise WorkloadError(f"{log.source}: the predicted step takes no time")
    measured = log.step_ps(round(rates.global_batch * rates.sequence / report.npus)) / PS_PER_S
    predicted = report.step_time_ps / PS_PER_S
    found = [
        (each, _changed_step(each, model, topology, options))
        for each in _changes(model, topology, options)
    ]
    suspects = [_suspect(each, step, predicted, measured, known) for each, step in found if step]
    steady = log.steady
    return LogExplanation(
        source=log.source,
        framework=log.form,
        job=_job_words(report),
        verdict=_verdict(measured, rates.low_s, rates.high_s),
        measured_s=measured,
        predicted_s=predicted,
        low_s=rates.low_s,
        high_s=rates.high_s,
        error=predicted / measured - 1,
        measured_tflops=log.steady_tflops,
        predicted_tflops=rates.model_tflops,
        steps=len(steady.kept),
        warm_up=tuple(log.numbers[place] for place in steady.warm_up),
        out_of_line=tuple(log.numbers[place] for place in steady.out_of_line),
        suspects=tuple(_ordered(suspects, predicted, measured)),
        without_worth=tuple(each.name for each in suspects if abs(each.worth) < _LEAST_WORTH),
        warnings=(*report.said, *_counted_otherwise(log, report, measured)),
    )


def _job_words(report: Report) -> str:
    """What was predicted, in a line."""
    rates = report.throughput
    degrees = " ".join(f"{name} {size}" for name, size in report.plan.items())
    batch = f", batch {rates.global_batch:,} x {rates.sequence:,} tokens" if rates else ""
    who = rates.device if rates else report.device
    return f"{report.workload} on {report.npus:,} {who} ({report.topology}): {degrees}{batch}"


def _verdict(measured: float, low: float | None, high: float | None) -> LogVerdict:
    if low is None or high is None:
        return LogVerdict.UNKNOWN
    if measured > high:
        return LogVerdict.SLOWER
    return LogVerdict.FASTER if measured < low else LogVerdict.INSIDE


def _ordered(found: list[LogSuspect], predicted: float, measured: float) -> list[LogSuspect]:
    """Suspects that move the step towards the measured one, the nearest to it first.

    Those that the log contradicts stand last.
    """
    slower = measured >= predicted
    towards = [
        each for each in found if abs(each.worth) >= _LEAST_WORTH and (each.worth > 0) is slower
    ]
    return sorted(
        towards, key=lambda each: (each.is_contradicted, abs(each.step_s - measured), each.name)
    )


def _suspect(
    change: _Change, step_ps: int, predicted: float, measured: float, known: Collection[str]
) -> LogSuspect:
    step, gap = step_ps / PS_PER_S, measured - predicted
    said = not (change.options.keys() - {"framework"}).isdisjoint(known)
    now = f" ({'said' if said else 'assumed'}: {change.now})" if change.now else ""
    return LogSuspect(
        name=change.name,
        what=f"{change.what}{now}",
        check=change.check,
        is_contradicted=said,
        step_s=step,
        worth=step / predicted - 1,
        explains=(step - predicted) / gap if gap else None,
    )


def _changed_step(
    change: _Change, model: Model, topology: Topology, options: StepOptions
) -> int | None:
    """The step with a change in ps; None where the job cannot run with it."""
    try:
        network = with_numbers(topology, change.numbers)
        changed = replace(options, **change.options)
        return int(simulate_step(model, network, changed).report.step_time_ps)
    except StepsimError:
        return None


def _counted_otherwise(log: StepLog, report: Report, measured: float) -> Iterator[str]:
    """What to say where the log counts other operations in a step than stepsim does."""
    rates, counted = report.throughput, log.steady_tflops
    if rates is None or counted is None:
        return
    ours = rates.model_tflops * report.step_time_ps / PS_PER_S
    ratio = counted * measured / ours
    if abs(ratio - 1) > _FLOPS_APART:
        yield (
            f"{log.source}: {log.form} counts {ratio:.2f} times as many operations in a step: "
            "another model or batch, or another way to count (causal attention, recomputation)"
        )


def _changes(model: Model, topology: Topology, options: StepOptions) -> Iterator[_Change]:
    """The usual suspects of a job, as it is planned."""
    built = make_work(model, topology, options).built
    if built is None:
        return
    plan = built.plan
    yield from _of_memory(plan)
    yield from _of_overlap(plan)
    yield from _of_pipeline(plan)
    yield from _of_kernels(plan)
    yield from _of_links(topology)
    yield from _of_hardware(plan, options, sparse=model.architecture.is_sparse)


def _of_memory(plan: ModelPlan) -> Iterator[_Change]:
    words = {
        Recompute.NONE: "nothing is recomputed",
        Recompute.SELECTIVE: "core attention is recomputed",
        Recompute.FULL: "whole layers are recomputed",
    }
    for kind, what in words.items():
        if kind is not plan.recompute:
            yield _Change(
                name=f"recompute-{kind}",
                what=what,
                now=str(plan.recompute),
                check="the arguments of recomputation or activation checkpointing",
                options={"recompute": kind, "recompute_layers": None},
            )


def _of_overlap(plan: ModelPlan) -> Iterator[_Change]:
    switches = {
        "dp_overlap": (plan.dp > 1, "gradients and parameters move beside compute"),
        "tp_comm_overlap": (plan.tp > 1, "tp collectives are pipelined with their products"),
        "expert_overlap": (plan.ep > 1, "exchanges of experts run beside compute"),
        "cuda_graph": (True, "CUDA graphs launch the layers"),
    }
    for name, (applies, what) in switches.items():
        if applies:
            on = getattr(plan, name)
            yield _Change(
                name=f"{name.replace('_', '-')}-{'off' if on else 'on'}",
                what=f"{what}: {'off' if on else 'on'}",
                now="on" if on else "off",
                check=f"the framework's argument of {name.replace('_', ' ')}",
                options={name: not on},
            )


def _of_pipeline(plan: ModelPlan) -> Iterator[_Change]:
    """The other of Megatron-LM's schedules, and the other way to exchange tokens of experts."""
    if plan.pp > 1 and plan.order is PipelineOrder.ALTERNATING:
        plain = plan.chunks > 1
        yield _Change(
            name="schedule-1f1b" if plain else "schedule-interleaved",
            what="a rank runs one stage" if plain else "a rank runs two virtual stages",
            now=f"{plan.chunks}",
            check="the argument of virtual pipeline stages",
            options={"schedule": "1f1b" if plain else "interleaved:2", "chunks": None},
        )
    if plan.ep > 1:
        plain = plan.dispatch is ExpertDispatch.ALL_TO_ALL
        other = ExpertDispatch.DEEPEP if plain else ExpertDispatch.ALL_TO_ALL
        yield _Change(
            name=f"dispatch-{other.replace('_', '-')}",
            what=f"tokens go to experts by {other.replace('_', '-')}",
            now=str(plan.dispatch),
            check="the argument of the token dispatcher; names of kernels in a profile",
            options={"dispatch": other},
        )


def _of_kernels(plan: ModelPlan) -> Iterator[_Change]:
    fused = plan.attention is AttentionKernel.FLASH
    yield _Change(
        name="attention-unfused" if fused else "attention-flash",
        what="attention runs without a fused kernel" if fused else "attention is fused",
        now="flash" if fused else "unfused",
        check="names of attention kernels in a profile; the attention backend in the log",
        options={"attention": AttentionKernel.UNFUSED if fused else AttentionKernel.FLASH},
    )
    other = Precision.FP8 if plan.precision is Precision.BF16 else Precision.BF16
    yield _Change(
        name=f"precision-{other}",
        what=f"products run in {other}",
        now=str(plan.precision),
        check="the argument of the precision; fp8 or not in names of kernels",
        options={"precision": other},
    )


def _of_links(topology: Topology) -> Iterator[_Change]:
    for link in topology.link_classes:
        yield _Change(
            name=f"slow-{link.name}",
            what=f"{link.name} links carry half of their bandwidth",
            check="nccl-tests between these GPUs; NCCL_DEBUG=INFO for the transport",
            numbers={f"{link.name}.bandwidth": link.bandwidth / 2},
        )


def _of_hardware(plan: ModelPlan, options: StepOptions, *, sparse: bool) -> Iterator[_Change]:
    if isinstance(options.framework, Framework):
        yield _Change(
            name="host-bound",
            what=f"the host takes {_LATE} times as long to launch a layer",
            check="gaps between kernels in a profile (stepsim improve): launches, data loader, GC",
            options={"framework": _late(options.framework)},
        )
    yield _Change(
        name="slow-gpu",
        what=f"one GPU computes {_SLOW} times as long",
        check="traces of all ranks (stepsim inspect); clocks, power and temperature",
        options={"slow": OPTIONS["slow"].of(f"0:{_SLOW}")},
    )
    yield _Change(
        name="slow-clocks",
        what=f"all GPUs compute {_SLOW} times as long",
        check="power limits and clocks while it trains (nvidia-smi -q -d PERFORMANCE)",
        options={"compute_scale": OPTIONS["compute_scale"].of(_SLOW)},
    )
    if sparse and plan.ep > 1 and options.expert_load is None:
        skewed = options.expert_skew is not None and options.expert_skew > 1
        yield _Change(
            name="experts-balanced" if skewed else "experts-uneven",
            what=f"the busiest expert rank has {1.0 if skewed else _SKEW} of the mean load",
            check="tokens per expert of the router",
            options={"expert_skew": 1.0 if skewed else _SKEW},
        )


def _late(framework: Framework) -> Framework:
    """A framework whose host launches layers more slowly."""
    return replace(
        framework,
        host_layer_ps=framework.host_layer_ps * _LATE,
        host_expert_layer_ps=framework.host_expert_layer_ps * _LATE,
    )
