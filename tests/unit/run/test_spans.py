"""One table for what ran: simulated steps and recorded ones give the same columns."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from helpers import examples, in_words
from hypothesis import given, strategies as st
from profiles import made_rows, write_rows
from random_jobs import Job, circumstances, jobs, networks

import stepsim
from stepsim.base.structs import replace
from stepsim.core.timeline import Timeline
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.measured import load_profile
from stepsim.files.spans_csv import span_lines
from stepsim.measured.profile.events import Profile
from stepsim.network.topology import Topology
from stepsim.run.spans import COMMUNICATIONS, SPAN_NUMBERS, UNKNOWN, Spans, TaskKind
from stepsim.show.perfetto import trace_lines
from stepsim.views.processes import TracedProfile, trace_processes

Sums = Counter[tuple[int, int]]


def worked(tables: Iterable[Spans]) -> Sums:
    """Picoseconds that every rank works on every stream, communication left out."""
    sums: Sums = Counter()
    for spans in tables:
        own = spans.taken(~spans.of_kind(*COMMUNICATIONS))
        columns = (own.rank, own.stream, own.end_ps - own.start_ps)
        for rank, stream, time_ps in zip(*(column.tolist() for column in columns), strict=True):
            sums[rank, stream] += time_ps
    return sums


@given(job=jobs(), network=networks(), data=st.data())
@examples(25)
def test_no_time_is_lost(job: Job, network: Topology, data: st.DataObject) -> None:
    """Task by task, as recorded operations, and action by action, with and without folding."""
    asked = data.draw(circumstances(job))
    result = stepsim.simulate(job.workload, network, **job.options(), **asked)
    timeline, every = result.timeline, range(result.report.npus)
    assert worked(timeline.spans(every)) == planned(timeline)
    profile = profile_of_step(timeline, source="job")
    assert worked([profile.spans()]) == planned(timeline)
    tables = zip(timeline.spans(every), timeline.spans(every, whole=True), strict=True)
    sizes = np.array([*(op.size_bytes for op in timeline.graph.comms), UNKNOWN])
    for tasks, segments in tables:
        assert (tasks.size_bytes == sizes[tasks.group]).all()
        ran = timeline.of_rank(int(tasks.rank[0]))
        for times in (tasks.actions(), segments.actions()):
            for one, other in zip(times, ran.entry_times, strict=True):
                assert (one == other[:, 0]).all()


def planned(timeline: Timeline) -> Sums:
    """What task lists say that every rank works, as it ran."""
    sums: Sums = Counter()
    for rank in range(timeline.graph.plan.npus):
        times = timeline.tasks(rank)
        program = timeline.graph.programs[timeline.graph.plan.stage_of(rank)]
        columns = (times.tasks.segment, times.tasks.inner, times.start, times.end)
        for number, inner, start, end in zip(*(c.tolist() for c in columns), strict=True):
            listed = program.looks[program.look[number]].task_list
            if listed >= 0:
                task = timeline.graph.task_lists[listed].tasks[inner]
                if task.comm < 0:
                    sums[rank, task.stream] += end - start
    return sums


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    pytest.importorskip("pyarrow")
    rows = made_rows(stages=2, replicas=2, microbatches=4, steps=2, slow=1)
    return load_profile(write_rows(rows, tmp_path_factory.mktemp("job") / "job.parquet"))


def test_a_profile_gives_the_table(profile: Profile) -> None:
    spans, events = profile.spans(), profile.events
    assert len(spans) == len(events)
    assert (spans.end_ps - spans.start_ps == events.duration_ps).all()
    assert {*spans.rank.tolist()} == {each.rank for each in profile.ranks}
    assert {*spans.step.tolist()} == {*profile.steps}
    assert [spans.names[i] for i in spans.name] == [profile.names[i] for i in events.name]
    assert spans.entries is None
    assert (spans.segment == UNKNOWN).all()
    assert not len(spans.actions()[0])


def test_chosen_spans_keep_their_texts(profile: Profile) -> None:
    spans = profile.spans()
    last = spans.taken(np.array([len(spans) - 1]))
    assert [*in_words(last)] == [*in_words(spans)][-1:]
    sends = spans.taken(spans.of_kind(TaskKind.SEND))
    assert {row.kind for row in in_words(sends)} == {TaskKind.SEND}
    assert {len(getattr(sends, name)) for name in SPAN_NUMBERS} == {len(sends)}


def test_a_span_in_words_names_its_action(workloads: Path) -> None:
    result = stepsim.simulate(workloads / "gpt_tp4.txt", "hgx-h100", npus=16, pp=4, microbatches=4)
    spans = next(result.timeline.spans())
    assert spans.entries
    told = [row.entry for row in in_words(spans)]
    assert told == [None if n == UNKNOWN else spans.entries[n] for n in spans.entry.tolist()]
    assert {*spans.entries} <= {*told}


def test_streams_are_called_by_name_or_number() -> None:
    spans = Spans.of(0, streams={6: "pp_forward"})
    assert [spans.stream_words(n) for n in (6, 7, UNKNOWN)] == ["pp forward", "stream 7", ""]


def test_csv_has_the_columns_that_the_source_tells(workloads: Path, profile: Profile) -> None:
    result = stepsim.simulate(workloads / "gpt_tp4.txt", "hgx-h100", npus=16, pp=4, microbatches=4)
    simulated, *rows = span_lines(result.timeline.spans())
    recorded, *operations = span_lines([profile.spans()])
    assert len(rows) == sum(map(len, result.timeline.spans()))
    assert len(operations) == len(profile.events)
    assert {*simulated} - {*recorded} == {"stage", "action", "alone_ps"}
    assert {*recorded} - {*simulated} == {"step"}


def test_a_trace_of_operations_without_groups_is_told(profile: Profile) -> None:
    bare = replace(
        profile,
        groups=(),
        events=replace(profile.events, group=np.full_like(profile.events.group, UNKNOWN)),
    )
    assert '"group"' not in "".join(trace_lines(trace_processes([TracedProfile(profile=bare)])))
