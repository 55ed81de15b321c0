"""The map of plans: what the step would take for every tp and pp, by the closed form."""

from stepsim.base.arrays import rows_of
from stepsim.base.errors import PlanError, errors_at
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.files.asked import StepInputs
from stepsim.serve.sliders import held_options, moved, possible_job, round_numbers
from stepsim.step.job import for_schedule, job_of
from stepsim.step.model_plan import interconnect_of
from stepsim.views.facts import Plain
from stepsim.workload.plan import Plan, PlanTable

_MOST_TP = 64
_MOST_PP = 64


def plan_map(job: StepInputs) -> Plain:
    """A cell for every tp and pp that divides the job, all else as it is, where it can be split so.

    A cell holds the estimated step, whether it fits, its memory, and whether the job is split so
    `now`. Raises PlanError for what is no model, or has no closed form.
    """
    depth, now = job.model.architecture.depth, job_of(job)
    assert now.setup
    with errors_at("no map of plans here", PlanError):
        network = interconnect_of(job.topology.fit(now.plan.npus))
    held = held_options(job, now.plan)
    made: dict[tuple[int, int], Plan] = {}
    for pp in _degrees(now.plan.npus, min(_MOST_PP, depth)):
        for tp in _degrees(now.plan.npus // pp, _MOST_TP):
            split = held if pp == now.plan.pp else moved(held, pp=pp)
            plain = for_schedule(replace(split, chunks=None), "1f1b")
            tried = (split, plain) if pp > 1 else (plain,)
            options = (replace(each, tp=tp) for each in tried)
            found = (possible_job(replace(job, options=each)) for each in options)
            if built := next(filter(None, found), None):
                made[tp, pp] = built.plan
    setup, table = replace(now.setup, interconnect=network), PlanTable([*made.values()])
    cells: list[Plain] = []
    for (tp, pp), seconds, total in rows_of(made, setup.seconds(table), setup.memory(table).total):
        step_ps, share = round(seconds * PS_PER_S), total / setup.device.memory_bytes
        cells.append(
            {
                "tp": tp,
                "pp": pp,
                "now": (tp, pp) == (now.plan.tp, now.plan.pp),
                "step_ps": step_ps,
                "text": format_time_ps(step_ps),
                "fits": share <= 1,
                "memory": f"{format_size_bytes(round(total))}, {share:.0%}",
            }
        )
    return {"cells": cells}


def _degrees(npus: int, most: int) -> list[int]:
    """Divisors of a number of ranks up to a limit that are powers of two, or three times one."""
    return [n for n in round_numbers(min(npus, most)) if npus % n == 0]
