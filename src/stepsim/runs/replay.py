"""A measured run replayed: its own stage times, order, host time and message times."""

from collections.abc import Iterator

from stepsim.base.errors import TraceError
from stepsim.files.asked import StepInputs
from stepsim.measured.layers import Durations
from stepsim.measured.ready import ReadyRun
from stepsim.measured.summary import RunSummary, of_ranks
from stepsim.measured.work import RecordedWork
from stepsim.options import StepOptions
from stepsim.step.prepared import SimulatedStep, prepare


def best_durations(summary: RunSummary) -> Durations:
    """A mean per microbatch where every rank was traced, else one mean per stage.

    Means, as a pipeline pays for every slow action. What one rank alone shows of a microbatch may
    be its own.
    """
    traced = len(summary.run.ranks) == summary.degrees.npus
    return Durations.MICROBATCH if traced else Durations.MEAN


def replay(ready: ReadyRun, durations: Durations | None = None) -> SimulatedStep:
    """Simulate a measured run with its own stage times and schedule.

    Without `durations` they are those that the run tells best. Raises TraceError where the order is
    that of no known schedule, or chunks are not told apart.
    """
    if ready.schedule is None:
        raise TraceError(
            f"{ready.source}: its order of forwards and backwards is that of no schedule "
            "known here: expected 1f1b, gpipe, interleaved or looped-bfs"
        )
    chunks = ready.schedule.placement.chunks
    if chunks > 1 and any(len(stage.chunks) != chunks for stage in ready.stages):
        raise TraceError(
            f"{ready.source}: ran {ready.schedule.label}: its trace does not tell chunks "
            "apart, so it cannot be simulated"
        )
    return simulated(ready.work(durations or best_durations(ready)))


def simulated(work: RecordedWork, options: StepOptions | None = None) -> SimulatedStep:
    """Run a recorded step, as it ran without options.

    It runs level by level: replays are fitted, varied and compared.
    """
    asked = StepInputs(work, work.topology, options or work.options)
    return prepare(asked, quick=True).simulated()


def columns(summary: ReadyRun) -> Iterator[ReadyRun]:
    """The run taken apart into its pipelines: one rank of every stage in each.

    A rank's own times tell its waits better than its stage's. Pipelines with an untraced rank are
    left out.
    """
    run, degrees = summary.run, summary.degrees
    width = degrees.stage_ranks or 1
    for index in range(width):
        places = [i for i, rank in enumerate(run.ranks) if rank.rank % width == index]
        if len(places) == degrees.pp:
            yield of_ranks(summary, places)
