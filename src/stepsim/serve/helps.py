"""What would make a step shorter: faster links or compute, another schedule, another plan."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import Values
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.batch.scenarios import PHASES
from stepsim.files.asked import StepInputs, read_options
from stepsim.network.prices import Known
from stepsim.network.topology.dimension import split_link
from stepsim.serve.plans import plan_map
from stepsim.serve.sliders import interleaved_names, lists_stages
from stepsim.serve.state import ExplorerState, number_text
from stepsim.step.prepared import prepare
from stepsim.views.facts import Plain
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.model import Model

# The share of its compute time that a step is tried with.
_FASTER = 0.9
# _Texts that save less than this share of the step are left out.
_LEAST = 0.0005
_MOST_SHOWN, _MOST_PLANS = 7, 2
# Schedules that are tried beside two interleaved ones.
_SCHEDULES = ("1f1b", "zb-h1")

# Options and numbers of links that a state would have, as typed; an empty text is the default.
_Texts = dict[str, str]


def speed_changes(batch: Batch, state: ExplorerState) -> tuple[int, list[Plain]]:
    """The step, and links of twice the bandwidth or half the latency, faster compute.

    All are simulated together.
    """
    columns = state.columns
    tried = [
        (words, change, typed)
        for words, change in _speeds(batch.setting.base() | columns)
        if batch.takes(typed := ExplorerState.of(change).columns)
    ]
    now, *steps = batch.step_times([columns, *(columns | typed for _, _, typed in tried)])
    rows = zip(tried, steps, strict=True)
    return now, [_row(words, change, step, now) for (words, change, _), step in rows]


def _speeds(now: Mapping[str, float]) -> Iterator[tuple[str, _Texts]]:
    """Words and numbers of what is faster than now."""
    for name, value in now.items():
        link, field = split_link(name)
        if field and value and field.name in _BETTER:
            words, factor = _BETTER[field.name]
            text = number_text(name, value * factor)
            yield words.format(link, text), {name: text}
    scales = {now[f"compute_scale.{phase}"] for phase in PHASES}
    if len(scales) == 1:
        yield "compute 10% faster", {"compute_scale": f"{_FASTER * scales.pop():.4g}"}


_BETTER = {
    "bandwidth": ("{} \u00d7 2: {}", 2.0),
    "latency": ("{} latency \u00f7 2: {}", 0.5),
    "endpoint_latency": ("{} endpoints \u00f7 2: {}", 0.5),
}


def job_changes(job: StepInputs, step_ps: int, *, fits: bool) -> Iterator[Plain]:
    """Other schedules, microbatch sizes and plans that fit, each simulated whole.

    Where the job itself does not fit, its rows say that the change `mends` that.
    """
    known: Known = {}
    for words, change in _other_jobs(job, fits=fits):
        try:
            typed, _ = read_options({name: text or None for name, text in change.items()})
            named: Values = {name: getattr(typed, name) for name in change}
            ready = prepare(job.asking(**named), known=known, quick=True)
            other_ps = ready.step_time_ps()
        except StepsimError:
            continue
        if not ready.unfit:
            row = _row(words, change, other_ps, step_ps)
            yield {**row, "mends": not fits}


def _other_jobs(job: StepInputs, *, fits: bool) -> Iterator[tuple[str, _Texts]]:
    """Words and options of jobs that may be faster."""
    options = job.options
    pp = options.pp or 1
    if pp > 1:
        moved = {"layout": ""} if lists_stages(options) else {}
        interleaved = interleaved_names(job.workload, pp)
        for name in dict.fromkeys((*interleaved[:1], *interleaved[-1:], *_SCHEDULES)):
            if name != options.schedule:
                yield f"schedule {name}", {"schedule": name, "chunks": "", **moved}
    if isinstance(job.workload, Model):
        size = 2 * options.samples if fits else options.samples // 2
        if size:
            yield f"mbs {size}", {"microbatch_size": str(size)}
        if not fits and options.recompute is not Recompute.FULL:
            yield "full recomputation", {"recompute": str(Recompute.FULL)}
        yield from _other_plans(job)


def _other_plans(job: StepInputs) -> Iterator[tuple[str, _Texts]]:
    """The plans that fit and have the shortest estimates, if they are not the job's own."""
    try:
        plans: Any = plan_map(job)
    except PlanError:
        return
    cells = [
        (cell["step_ps"], cell["tp"], cell["pp"])
        for cell in plans["cells"]
        if cell["fits"] and not cell["now"]
    ]
    for _, tp, pp in islice(sorted(cells), _MOST_PLANS):
        free = dict.fromkeys(("chunks", "microbatch_size", "layout"), "")
        yield f"plan tp {tp}, pp {pp}", {"tp": str(tp), "pp": str(pp), **free}


def _row(words: str, change: _Texts, step_ps: int, now_ps: int) -> Plain:
    return {"words": words, "change": change, "step_ps": step_ps, "saved_ps": now_ps - step_ps}


def best_first(
    rows: Sequence[Mapping[str, Any]], step_ps: int, *, fits: bool
) -> list[Mapping[str, Any]]:
    """The changes that save something, or let the job fit that does not; the fastest first."""
    if fits:
        good = [row for row in rows if row["saved_ps"] > _LEAST * step_ps]
    else:
        good = [row for row in rows if row.get("mends")]
    return sorted(good, key=lambda row: (row["step_ps"], row["words"]))[:_MOST_SHOWN]
