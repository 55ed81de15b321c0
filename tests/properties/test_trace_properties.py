"""Traces of random jobs: every span once, messages joined, counters that add up."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from helpers import Span, examples, rows_of, stream_words
from hypothesis import HealthCheck, given, settings, strategies as st
from invariants import predecessors, task_times
from random_jobs import Job, jobs, networks
from trace_files import ReadProcess, ReadSlice, check_schema, read_trace

from stepsim.explain.counters import link_rates
from stepsim.face.results import Result
from stepsim.face.steps import simulate
from stepsim.network.topology import Topology
from stepsim.parallel.schedules import Action
from stepsim.run.spans import UNKNOWN
from stepsim.show.perfetto import trace_lines
from stepsim.views.processes import TracedRun, trace_processes

few_examples = settings(examples(25), suppress_health_check=[HealthCheck.data_too_large])


def trace_text(*results: Result, ranks: tuple[int, ...] | None = None) -> str:
    return "".join(trace_lines(trace_processes(TracedRun(result, ranks) for result in results)))


def traced(job: Job, network: Topology, *, fold: bool, contention: str) -> tuple[Result, str]:
    options: Any = job.options()
    result = simulate(job.workload, network, **options, fold_ranks=fold, contention=contention)
    return result, trace_text(result)


def as_told(each: ReadSlice, stream: str) -> tuple[object, ...]:
    """What a slice says of a span."""
    row, size = each.args.get("row", each.name), each.args.get("size_bytes", UNKNOWN)
    where = each.args["stage"], stream, each.args.get("phase", ""), each.args.get("action", "")
    return row, *where, size, each.start, each.end


def as_is(span: Span) -> tuple[object, ...]:
    action = span.entry.token if span.entry else ""
    where = span.stage, stream_words(span), span.phase, action
    return span.label, *where, span.size_bytes, span.start_ps, span.end_ps


def check_spans(result: Result, processes: list[ReadProcess]) -> None:
    """Every span is one slice; every rank is in one process."""
    actors = result.timeline.actors
    assert len(processes) == len(actors)
    for rank, process in zip(actors.ranks.tolist(), processes, strict=True):
        found = Counter(as_told(each, stream) for stream, each in process.tasks())
        assert found == Counter(as_is(span) for span in rows_of(result.timeline, [rank]))


def check_messages(processes: list[ReadProcess]) -> None:
    """Every message is an arrow from its send to its receipt."""
    ends: dict[int, dict[str, ReadSlice]] = {}
    for process in processes:
        for _, each in process.tasks():
            assert len(each.arrows) == (each.category in ("send", "recv"))
            for phase, number in each.arrows:
                assert phase == {"send": "s", "recv": "f"}[each.category]
                assert ends.setdefault(number, {}).setdefault(phase, each) is each
    for end in ends.values():
        sent, received = end["s"], end["f"]
        assert (sent.start, sent.end) == (received.start, received.end)
        assert sent.name == f"send to stage {received.args['stage']}"
        assert received.name == f"receive from stage {sent.args['stage']}"
        ahead = 1 if sent.args["phase"] == "forward" else -1
        assert received.args["virtual_stage"] == sent.args["virtual_stage"] + ahead
        for fact in ("microbatch", "phase", "size_bytes", "algorithm"):
            assert sent.args.get(fact) == received.args.get(fact)


def check_actions(result: Result, processes: list[ReadProcess]) -> None:
    """The schedule thread holds the actions in order; a message carries what an action made."""
    for rank, process in zip(result.timeline.actors.ranks.tolist(), processes, strict=True):
        stage = result.plan.stage_of(rank)
        entries = result.timeline.graph.programs[stage].entries
        shown = [s for s in process.threads.get("schedule", []) if "action" in s.args]
        assert [s.args["action"] for s in shown] == [entry.token for entry in entries]
        made = {
            (p.stage, p.microbatch) for e in entries for p in e.parts() if isinstance(p, Action)
        }
        for _, each in process.tasks():
            if each.category == "send":
                assert (each.args["virtual_stage"], each.args["microbatch"]) in made


def check_live(result: Result, processes: list[ReadProcess]) -> None:
    """Live activations end at none, and are as many as the schedule holds at most."""
    for rank, process in zip(result.timeline.actors.ranks.tolist(), processes, strict=True):
        values = [sum(row.values()) for _, row in process.counters["live activations"]]
        assert values[-1] == 0
        assert all(value >= 0 and value == int(value) for value in values)
        stage = result.plan.stage_of(rank)
        most = result.report.stages[stage].peak_activations
        actions = process.threads.get("schedule", [])
        if all(each.end > each.start for each in actions):
            assert max(values) == most.freed_at_w
        assert max(values) <= most.freed_at_w


def check_links(result: Result, step: ReadProcess, *, instant: bool) -> None:
    """The area below a link counter is the bytes its class carries.

    With `instant` transfers, which take no time, it may be less.
    """
    for link in result.report.links:
        if not link.used:
            assert link.name not in step.counters
            continue
        points = step.counters[link.name]
        assert points[0][0] == 0
        assert points[-1][1] == {"GB/s per link in use": 0}
        area = sum(
            row["GB/s per link in use"] * (later - now) / 1000
            for (now, row), (later, _) in pairwise(points)
        )
        carried = link.total_bytes / link.used
        slack = carried * 1e-5 + 0.5 / link.used  # bytes are told as whole ones
        assert area <= carried + slack
        assert instant or area == pytest.approx(carried, abs=slack)


def check_waits(result: Result, processes: list[ReadProcess]) -> None:
    """A slice names what ended on its own rank when it started, or the rank it waited for."""
    start, end = task_times(result.timeline)
    ready: dict[tuple[object, ...], set[bool]] = {}
    timeline = result.timeline
    spans: dict[tuple[int, int, int], Span] = {}
    for rank in range(timeline.graph.plan.npus):
        times = timeline.tasks(rank)
        places = zip(times.tasks.segment.tolist(), times.tasks.inner.tolist(), strict=True)
        for place, span in zip(places, rows_of(timeline, [rank]), strict=True):
            spans[rank, *place] = span
    for key, before in predecessors(timeline).items():
        rank, begin, span = key[0], start[key], spans[key]
        own = begin == max((end[place] for place in before), default=0)
        ready.setdefault((rank, *as_is(span)), set()).add(own)
    for rank, process in zip(timeline.actors.ranks.tolist(), processes, strict=True):
        for stream, each in process.tasks():
            waited_for = each.args.get("waited_for", "")
            assert bool(waited_for) == (each.start > 0)
            if waited_for:
                assert (not waited_for.startswith("rank ")) in ready[rank, *as_told(each, stream)]


@few_examples
@given(
    job=jobs(), network=networks(), fold=st.booleans(), contention=st.sampled_from(["none", "fair"])
)
def test_a_trace_tells_the_timeline(
    job: Job, network: Topology, fold: bool, contention: str
) -> None:
    result, text = traced(job, network, fold=fold, contention=contention)
    check_schema(text)
    step, *processes = read_trace(text)
    check_spans(result, processes)
    check_messages(processes)
    check_actions(result, processes)
    check_live(result, processes)
    spans = list(rows_of(result.timeline))
    instant = any(s.size_bytes > 0 and s.start_ps == s.end_ps for s in spans)
    check_links(result, step, instant=instant)
    check_waits(result, processes)


@few_examples
@given(job=jobs(), network=networks())
def test_a_class_of_ranks_is_told_as_each_of_them_is(job: Job, network: Topology) -> None:
    folded, _ = traced(job, network, fold=True, contention="none")
    _, text = traced(job, network, fold=False, contention="none")
    step, *processes = read_trace(text)
    with pytest.MonkeyPatch.context() as patch:  # rates of links are of the whole step
        rates = link_rates(folded.timeline, folded.prices)
        patch.setattr("stepsim.views.processes.link_rates", lambda *_: rates)
        told = [read_trace(trace_text(folded, ranks=(rank,))) for rank in range(len(processes))]
    for rank, (process, (alone, shown)) in enumerate(zip(processes, told, strict=True)):
        assert str(rank) in shown.name
        assert list(shown.threads) == list(process.threads)
        for name, slices in process.threads.items():
            others = shown.threads[name]
            assert [(s.name, s.start, s.end) for s in slices] == [
                (s.name, s.start, s.end) for s in others
            ]
        assert shown.counters == process.counters
        assert alone.counters.keys() == step.counters.keys()
