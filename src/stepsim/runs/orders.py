"""Other orders of a recorded pipeline, and twice its microbatches: `what-if`, asked of each.

So `improve` and `what-if` say the same of an order. The step of median length is simulated from its
stage times, in its own order and in others.
"""

from collections.abc import Iterator

from stepsim.base.errors import StepsimError, TraceError
from stepsim.base.structs import Names, replace
from stepsim.explain.changes.made import Improvement, UntoldChange
from stepsim.explain.report import Report
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile_run import run_of_profile
from stepsim.measured.ready import ReadyRun, ready_run
from stepsim.measured.recognise import RECORDED
from stepsim.measured.summary import RunSummary
from stepsim.parallel.schedules import Schedule
from stepsim.runs.replay import simulated
from stepsim.runs.what_if import change_run

# A run whose own order comes out worse tells nothing of other orders.
_MOST_OFF = 0.05
_TWICE = 2


def told_stages(profile: Profile) -> RunSummary | str:
    """The stage times of a profile's step of median length; a text says what does not tell them."""
    try:
        return run_of_profile(profile)
    except StepsimError as error:
        return str(error)


def notes_of(run: RunSummary, profile: Profile) -> list[str]:
    """By what the stages of a profile's run were told, and which step was taken."""
    notes = run.warnings[len(profile.warnings) :]
    return [note.removeprefix(f"{profile.source}: ") for note in notes]


def order_changes(profile: Profile, run: RunSummary | str) -> Iterator[Improvement | UntoldChange]:
    """What other orders of a profile's pipeline gain of its step, or what does not tell them.

    `run` are its `told_stages`.
    """
    try:
        ready, base, followed = _as_it_ran(run)
    except StepsimError as error:
        why = str(error).splitlines()[0].removeprefix(f"{profile.source}: ")
        yield UntoldChange(name="other-schedules", why=why)
        return
    notes = [*notes_of(ready, profile), "activations fit"]
    if len(ready.run.stages) < ready.degrees.pp:
        notes += ready.notes
    for name, chunks, twice in _candidates(followed):
        yield _judged(ready, base, (name, chunks), twice=twice, notes=notes)


def _as_it_ran(run: RunSummary | str) -> tuple[ReadyRun, Report, Schedule]:
    """What a run is replayed with, simulated as it ran, and its order.

    Raises TraceError where stages or order are not known, or it takes otherwise simulated, and the
    errors of `ready_run` and `change_run`.
    """
    if isinstance(run, str):
        raise TraceError(run)
    ready = ready_run(run)
    base = simulated(ready.work()).report
    off = abs(base.step_time_ps / run.step_ps - 1)
    if run.degrees.pp == 1:
        raise TraceError("the run has one stage, or does not name its stages")
    if run.schedule is None:
        raise TraceError("its order is that of no schedule known here")
    if off > _MOST_OFF:
        raise TraceError(f"simulated as it ran it is {off:.1%} off: ranks of a stage differ")
    return ready, base, run.schedule


def _candidates(followed: Schedule) -> list[tuple[str, int, bool]]:
    """Names of schedules, chunks of a rank, and whether there are twice the microbatches."""
    now, had = followed.name, followed.placement.chunks
    others = [("interleaved", 2 * had), ("1f1b", 1)]
    others += [("zb-h1", 1)] if had == 1 else [("interleaved", had), ("interleaved-zb", had)]
    told = [(*each, False) for each in others if each != (now, had)]
    return told if now == RECORDED else [*told, (now, had, True)]


def _judged(
    ready: ReadyRun, base: Report, order: tuple[str, int], *, twice: bool, notes: list[str]
) -> Improvement | UntoldChange:
    """What a schedule of so many chunks gains of a step, or why it cannot run.

    Of twice the microbatches each has half the work, but the host's: they are simulated with their
    whole work beside twice the host's time, and their pipeline takes half of that.
    """
    name, chunks = order
    schedule = name if chunks == 1 else f"{name}:{chunks}"
    called = "twice-the-microbatches" if twice else f"schedule-{schedule.replace(':', '-')}"
    degrees, host = ready.degrees, ready.host_overhead_ps
    if twice:
        ready = replace(ready, host_overhead_ps=_TWICE * host)
    try:
        found = change_run(
            replace(ready, notes=()),
            schedule=None if twice else schedule,
            microbatches=_TWICE * base.microbatches if twice else None,
            layers=degrees.pp * chunks if degrees.layers is None else None,
        )
    except StepsimError as error:
        return UntoldChange(name=called, why=str(error).splitlines()[0])
    changed = found.changed.report
    step_ps, what = changed.step_time_ps, f"the pipeline runs {changed.schedule}"
    if twice:
        step_ps -= changed.pipeline_time_ps // _TWICE
        what = f"{changed.microbatches} microbatches in place of {base.microbatches}, under {name}"
    gain = 1 - step_ps / base.step_time_ps
    idle = base.zero_bubble_rate * base.pipeline_time_ps / base.step_time_ps
    return Improvement(
        name=called,
        what=what,
        step_ps=step_ps,
        gain=gain,
        ceiling=max(gain, idle),
        low=gain,
        high=gain,
        assumed="; ".join((*found.notes, *_assumed(base, changed), *notes)),
    )


def _assumed(base: Report, changed: Report) -> Names:
    """What has to hold where chunks, microbatches or messages are others."""
    told = {
        "a rank's layers are shared out evenly over its chunks": ":" in changed.schedule,
        "half a microbatch takes half as long": changed.microbatches != base.microbatches,
        f"messages are sent as {changed.p2p}, not {base.p2p}": changed.p2p != base.p2p,
    }
    return tuple(text for text, holds in told.items() if holds)
