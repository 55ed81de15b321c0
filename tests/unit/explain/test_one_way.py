"""Whatever is said of a run asks `tables.ends` when things end: of profiles, and of replays."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from traces import MadeRun

from stepsim.explain.path import critical_parts
from stepsim.explain.replayed import replayed_kinds, replayed_ranks
from stepsim.explain.stragglers import find_stragglers
from stepsim.files.measured import load_trace
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.run import OpKind
from stepsim.measured.summary import RunSummary
from stepsim.run.spans import TaskKind
from stepsim.runs.improve import change_profile, improve_profile
from stepsim.runs.measured import change_measured, replay_measured, validate_measured
from stepsim.runs.what_if import RunChange

RUN = MadeRun(forward=(10, 8, 9), backward=(20, 16, 18), microbatches=6)
OF_PROFILES: list[Callable[[Profile], object]] = [
    improve_profile,
    lambda profile: change_profile(profile, "even-stages"),
    lambda profile: find_stragglers(pipeline_waits(profile)),
    lambda profile: critical_parts(pipeline_waits(profile)),
    lambda profile: replayed_ranks(pipeline_waits(profile)),
    lambda profile: replayed_kinds(pipeline_waits(profile)),
]
OF_RUNS: list[Callable[[RunSummary], object]] = [
    replay_measured,
    lambda run: change_measured(run, RunChange(schedule="gpipe")),
    lambda run: validate_measured([run]),
]


class _AskedError(Exception):
    """Somebody wants to know when tasks end."""


def _refuse(*_: object, **__: object) -> NoReturn:
    raise _AskedError


@pytest.fixture
def run(tmp_path: Path) -> RunSummary:
    return load_trace(RUN.write(tmp_path / "run"))


@pytest.mark.parametrize("says", OF_PROFILES)
def test_profiles_have_one_function_for_times(
    run: RunSummary, monkeypatch: pytest.MonkeyPatch, says: Callable[[Profile], object]
) -> None:
    says(run.run)
    monkeypatch.setattr("stepsim.measured.profile.waits.ends", _refuse)
    with pytest.raises(_AskedError):
        says(run.run)


@pytest.mark.parametrize("says", OF_RUNS)
def test_replays_have_one_function_for_times(
    run: RunSummary, monkeypatch: pytest.MonkeyPatch, says: Callable[[RunSummary], object]
) -> None:
    says(run)
    monkeypatch.setattr("stepsim.core.timeline.ends", _refuse)
    with pytest.raises(_AskedError):
        says(run)


def test_a_run_says_of_its_profile_what_its_stages_take(run: RunSummary) -> None:
    """Statistics of a run are those of the columns of its profile."""
    events = run.run.events
    stage = run.run.column_of_ranks("stage")
    for times in run.stages:
        forward = (stage == times.stage) & (events.name == OpKind.FORWARD)
        assert times.work[OpKind.FORWARD].mean_ps == round(events.duration_ps[forward].mean())
    messages = events.of_kind(TaskKind.SEND, TaskKind.RECV)
    assert (events.peer[messages] >= 0).all()


def test_peers_that_were_not_traced_are_not_known(tmp_path: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    alone = load_trace(sorted(folder.iterdir())[0])
    events = alone.run.events
    assert (events.peer == -1).all()
    meetings = events.meeting[events.meeting >= 0].tolist()
    assert len(set(meetings)) == len(meetings), "no two operations of one rank meet"
