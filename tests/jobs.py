"""Jobs as people type them, for what takes nouns."""

from pathlib import Path
from typing import Any

from stepsim.base.structs import replace
from stepsim.explain.make_report import StepTotals, make_totals
from stepsim.explore.batch.evaluation import Batch, make_batch as compile_batch
from stepsim.files.asked import StepInputs, read_inputs, read_options
from stepsim.files.load import workload_of
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.prepared import prepare
from stepsim.workload.rows import Workload


def asked(**typed: object) -> StepOptions:
    """Options as typed."""
    return read_options(typed)[0]


def short_job(name: str, layers: int) -> Workload:
    """The first layers of every stage of a shipped workload, with nothing to doubt in it.

    What is asked of a step means the same to it, and it is simulated in a part of the time.
    """
    whole = workload_of(Path(__file__).parents[1] / "workloads" / f"{name}.txt")
    blocks = tuple(replace(block, layers=block.layers[:layers]) for block in whole.microbatches)
    return replace(whole, microbatches=blocks, doubts=())


def totals_of(*job: Any, known: Known | None = None) -> StepTotals:
    """Totals with the parts of the step, as a sweep finds them, of a workload on a topology."""
    ready = prepare(StepInputs(*job), known=known, quick=True)
    return make_totals(ready.timeline(), ready.workload, breakdown=True)


def make_batch(
    workload: Workload | str | Path,
    topology: Topology | str | Path | None = None,
    *,
    coalesce: bool = True,
    shared: bool = False,
    **typed: object,
) -> Batch:
    """A job compiled for evaluation."""
    job = read_inputs(workload, topology, typed)
    return compile_batch(job, coalesce=coalesce, shared=shared)
