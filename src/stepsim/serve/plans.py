"""The map of plans: what the step would take for every tp and pp, by the closed form."""

import numpy as np

from stepsim.base.errors import PlanError, TopologyError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.files.asked import StepInputs
from stepsim.network.topology import Topology
from stepsim.serve.sliders import held_options, moved, possible_job, round_numbers
from stepsim.show.page.facts import Plain
from stepsim.step.job import Job, for_schedule, job_of
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.model import Model
from stepsim.workload.plan import PlanTable

_MOST_TP = 64
_MOST_PP = 64


def plan_map(job: StepInputs) -> Plain:
    """A cell for every tp (across) and pp (up) that divides the job, all else as it is.

    A cell holds the estimated step, whether it fits, and its memory; None where the job cannot be
    split so. Raises PlanError for what is no model, or has no closed form.
    """
    model, topology, options = job.nouns
    if not isinstance(model, Model):
        raise PlanError("only a model can be split otherwise: a workload file has one plan")
    now = job_of(model, topology, options)
    held = held_options(job, now.plan)
    made: dict[tuple[int, int], Job] = {}
    for pp in _degrees(now.plan.npus, min(_MOST_PP, model.architecture.depth)):
        for tp in _degrees(now.plan.npus // pp, _MOST_TP):
            split = held if pp == now.plan.pp else moved(held, pp=pp)
            plain = for_schedule(replace(split, chunks=None), "1f1b")
            tried = (split, plain) if pp > 1 else (plain,)
            found = (possible_job(model, topology, replace(each, tp=tp)) for each in tried)
            if built := next(filter(None, found), None):
                made[tp, pp] = built
    cells = dict(zip(made, _cells(list(made.values()), topology), strict=True))
    across, up = (sorted({key[i] for key in made}) for i in range(2))
    return {
        "tp": across,
        "pp": up,
        "now": [now.plan.tp, now.plan.pp],
        "cells": [[cells.get((tp, pp)) for tp in across] for pp in up],
    }


def _degrees(npus: int, most: int) -> list[int]:
    """Divisors of a number of ranks up to a limit that are powers of two, or three times one."""
    return [n for n in round_numbers(min(npus, most)) if npus % n == 0]


def _cells(made: list[Job], topology: Topology) -> list[Plain]:
    """What is shown of some plans of one size on one machine."""
    setup = made[0].setup if made else None
    if setup is None:
        return []
    table = PlanTable([job.plan for job in made])
    try:
        network = interconnect_of(topology.fit(made[0].plan.npus))
    except TopologyError as error:
        raise PlanError(f"no map of plans here: {error}") from None
    setup = replace(setup, interconnect=network)
    memory = setup.memory(table)
    step_ps = np.rint(setup.seconds(table) * PS_PER_S).astype(np.int64).tolist()
    shares = memory.share_of(setup.device).tolist()
    return [
        {
            "step_ps": step,
            "text": format_time_ps(step),
            "fits": share <= 1,
            "memory": f"{format_size_bytes(round(total))}, {share:.0%}",
        }
        for step, total, share in zip(step_ps, memory.total.tolist(), shares, strict=True)
    ]
