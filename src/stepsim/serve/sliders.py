"""The values that the sliders of a page may take: those with which the job can run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.files.asked import StepInputs, WorkSource
from stepsim.network.placement import place
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.schedules import BUILDERS, needs_times
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.parallel.stages import split_stages
from stepsim.step.job import Job, choose_schedule, for_schedule, job_of
from stepsim.step.plans import powers
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan

_OF_MODELS = ("npus", "sequence", "global_batch", "tp", "pp", "cp", "ep", "microbatch_size")
# Options beside the sliders that a plan by default may set.
_PLANNED = ("expert_tp", "recompute", "recompute_layers", "layout", "schedule")
# Degrees that need not be said where another one is.
_USUAL = (("cp", 1), ("ep", 1))
_OF_FILES = ("npus", "pp", "microbatches", "microbatch_size")
_MOST_NPUS, _MOST_RANKS, _MOST_BATCH, _MOST_SEQUENCE = 4096, 64, 8192, 1 << 17
_MOST_SAMPLES, _MOST_MICROBATCHES = 16, 256
_LEAST_SEQUENCE = 512
_MOST_CHUNKS = 8


def slider_values(job: StepInputs) -> dict[str, object]:
    """Names of sliders with their values and the one that the job has, and schedules that can run.

    The job cannot run with `unable` values, round ones alone, while all others stay as they are; of
    a job that cannot run the others mend it.
    """
    work, options, now = job.workload, job.options, possible_job(job)
    held = held_options(job, now.plan if now and now.setup else None)
    sliders = []
    for name in _OF_MODELS if isinstance(work, Model) else _OF_FILES:
        current = _current(name, options, now)
        tried = {*_candidates(name, work, now), *([current] if current else [])}
        able = {
            value
            for value in tried
            if value == current or possible_job(replace(job, options=moved(held, **{name: value})))
        }
        values = sorted(able | tried.intersection(round_numbers(_MOST_SEQUENCE)))
        unable = sorted({*values} - able)
        sliders.append({"name": name, "now": current, "values": values, "unable": unable})
    kept = ((name, getattr(held, name)) for name in (*_OF_MODELS, *_PLANNED))
    return {
        "sliders": sliders,
        "schedules": _schedules(replace(job, options=held), now),
        "held": {
            name: OPTIONS[name].text(value)
            for name, value in kept
            if value is not None and (name, value) not in _USUAL
        },
    }


def possible_job(asked: StepInputs) -> Job | None:
    """The job as far as it is made before anything is simulated; None where it cannot be."""
    try:
        job = job_of(asked)
        network = place(asked.topology, job.plan, asked.options.placement)
        schedule = job.options.schedule
        if not (isinstance(schedule, str) and needs_times(schedule)):
            chosen = choose_schedule(job, network)
            split_stages(job.workload, job.plan, chosen.placement, asked.options.stage_rows)
    except StepsimError:
        return None
    return job


def held_options(job: StepInputs, plan: Plan | None) -> StepOptions:
    """The options of a job with all that its model's plan has where nobody asked for it.

    Another degree is then the only change. `plan` is the model's; a job that could not be made, and
    one of a workload file, keeps its options.
    """
    options = job.options
    if plan is None:
        return options
    if options.chunks is not None and isinstance(options.schedule, str):
        looped = f"{PAIRED if plan.runs_pairs else 'interleaved'}:{options.chunks}"
        named = looped if options.chunks > 1 and options.schedule == "1f1b" else options.schedule
        options = for_schedule(replace(options, chunks=None), named)
    names = [name for name in _OF_MODELS if getattr(options, name) is None]
    if options.microbatches is not None:
        names.remove("global_batch")
    return replace(options, **{name: getattr(plan, name) for name in names})


def lists_stages(options: StepOptions) -> bool:
    """Whether the layout lists the layers of every stage: one of so many stages alone."""
    return any(mark in (options.layout or "") for mark in "|+,")


def moved(options: StepOptions, **changed: Any) -> StepOptions:
    """The options with others; a layout that lists its stages is not that of other pipelines."""
    options = replace(options, **changed)
    return replace(options, layout=None) if "pp" in changed and lists_stages(options) else options


def _current(name: str, options: StepOptions, now: Job | None) -> int | None:
    """The value that the job has of a slider; None where it is not known."""
    if now is not None and (now.setup or name in ("npus", "pp", "microbatches")):
        return int(getattr(now.plan, name))
    asked = getattr(options, name)
    return 1 if asked is None and name == "microbatch_size" else asked


def _candidates(name: str, work: WorkSource, now: Job | None) -> Iterable[int]:
    """Values of a slider that are tried."""
    replicas = now.plan.dp if now else 1
    if name == "ep" and isinstance(work, Model) and not work.architecture.is_sparse:
        return (1,)
    tried: Mapping[str, Iterable[int]] = {
        "npus": round_numbers(_MOST_NPUS),
        "sequence": (n for n in powers(_MOST_SEQUENCE) if n >= _LEAST_SEQUENCE),
        "global_batch": (replicas * n for n in round_numbers(_MOST_BATCH // replicas)),
        "microbatches": round_numbers(_MOST_MICROBATCHES),
        "microbatch_size": powers(_MOST_SAMPLES),
        "pp": range(1, 1 + min(_MOST_RANKS, _depth(work))),
    }
    return tried.get(name, powers(_MOST_RANKS))


def _depth(work: WorkSource) -> int:
    return work.architecture.depth if isinstance(work, Model) else work.layers or 1


def interleaved_names(work: WorkSource, pp: int) -> list[str]:
    """The interleaved schedules whose chunks divide the layers of every stage."""
    even = (n for n in range(2, 1 + _MOST_CHUNKS) if _depth(work) % (n * pp) == 0)
    return [f"interleaved:{chunks}" for chunks in even]


def round_numbers(most: int) -> list[int]:
    """Powers of two and three times those, ascending up to a number."""
    return sorted({*powers(most), *(3 * power for power in powers(most // 3))})


def _schedules(job: StepInputs, now: Job | None) -> Sequence[str]:
    """Names of schedules that the job can run, interleaved ones with their chunks."""
    options = job.options
    asked = options.schedule if isinstance(options.schedule, str) else options.schedule.label
    if now is None or now.plan.pp == 1:
        return sorted({"1f1b", asked})
    bare = moved(options, chunks=None, pp=options.pp)
    names = [name for name in BUILDERS if not needs_times(name) and name != "interleaved"]
    names += interleaved_names(job.workload, now.plan.pp)
    able = (n for n in names if possible_job(replace(job, options=for_schedule(bare, n))))
    return [*dict.fromkeys(["1f1b", *sorted(able), asked])]
