"""What a page draws of a run: what spans wait for, its tasks, the load of its network."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from serving import unfolded

import stepsim
from stepsim.serve.answers import Answers
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.state import ExplorerState
from stepsim.show.page.lanes import lanes_of_timeline, shown_actors, tasks_of_timeline

STATE = {
    "workload": "llama-3.2-3b",
    "topology": "hgx-h100",
    "npus": "32",
    "tp": "2",
    "pp": "4",
    "global_batch": "32",
    "microbatch_size": "1",
    "schedule": "1f1b",
}
MESSAGES = 2


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return Explorer(library=NamedNouns())


@pytest.fixture(scope="module")
def shown(explorer: Explorer) -> Any:
    found: Any = explorer.shown(ExplorerState.of(STATE))
    return {**found, "lanes": unfolded(found["lanes"])}


def test_a_span_begins_after_all_that_it_waits_for(shown: Any) -> None:
    lanes = shown["lanes"]
    for i, waits in enumerate(lanes["waits"]):
        if lanes["lane"][i] != MESSAGES:
            assert all(lanes["end"][before] <= lanes["start"][i] for before in waits)


def test_a_receipt_waits_for_the_send_of_another_stage(shown: Any) -> None:
    lanes = shown["lanes"]
    crossing = [
        (before, i)
        for i, waits in enumerate(lanes["waits"])
        for before in waits
        if lanes["row"][before] != lanes["row"][i]
    ]
    assert crossing
    for before, i in crossing:
        assert lanes["lane"][before] == lanes["lane"][i] == MESSAGES
        assert lanes["end"][before] <= lanes["end"][i]


def test_spans_say_which_axes_they_use(shown: Any) -> None:
    lanes, axes = shown["lanes"], shown["network"]["axes"]
    used = {
        (lane, name)
        for lane, bits in zip(lanes["lane"], lanes["axes"], strict=True)
        for i, name in enumerate(axes)
        if bits >> i & 1
    }
    assert {(0, "tp"), (MESSAGES, "pp")} <= used
    assert not {(MESSAGES, "tp"), (0, "pp")} & used


def test_links_say_which_axes_they_carry(shown: Any) -> None:
    network = shown["network"]
    carried = {
        link["name"]: {name for i, name in enumerate(network["axes"]) if link["axes"] >> i & 1}
        for link in network["links"]
    }
    assert carried == {"nvlink": {"tp", "dp"}, "fabric": {"pp"}}, "a stage is a node"
    assert [level["size"] for level in network["levels"]] == [8, 4]
    assert all(0 < link["share"] < 1 for link in network["links"])


@pytest.mark.parametrize("change", [{}, {"compute_scale": "1.7"}, {"host_overhead": "70 us"}])
def test_tasks_are_those_of_the_run(explorer: Explorer, change: dict[str, str]) -> None:
    state = ExplorerState.of(STATE | change)
    found: Any = explorer.tasks(state, 0, 1)["tasks"]
    tasks, timeline = unfolded(found), explorer.run(explorer.inputs(state)).timeline
    tables = list(timeline.spans())
    for name in ("start", "end", "alone"):
        ran = [time for spans in tables for time in getattr(spans, f"{name}_ps").tolist()]
        assert tasks[name] == ran
    lanes = [spans.stream_words(each) for spans in tables for each in spans.stream.tolist()]
    assert [found["lanes"][lane] for lane in tasks["lane"]] == lanes


def test_spans_are_those_of_the_run(explorer: Explorer, shown: Any) -> None:
    timeline = explorer.run(explorer.inputs(ExplorerState.of(STATE))).timeline
    chosen, _ = shown_actors(timeline.graph, timeline.actors)
    tables = [*timeline.spans(timeline.actors.ranks[chosen].tolist(), whole=True)]
    for name, column in (("start", "start_ps"), ("end", "end_ps")):
        ran = [time for spans in tables for time in getattr(spans, column).tolist()]
        assert shown["lanes"][name] == ran
    assert {"0F0", "3B7", "send to stage 1"} <= set(shown["lanes"]["words"])


def test_an_answer_grows_slower_than_its_microbatches(explorer: Explorer) -> None:
    sizes = []
    for batch in ("64", "512"):
        state = ExplorerState.of({**STATE, "global_batch": batch})
        lanes: Any = explorer.shown(state)["lanes"]
        sizes.append((len(lanes["of"]), len(json.dumps(lanes, separators=(",", ":")))))
    (few, small), (many, large) = sizes
    assert many > 6 * few
    assert large < 10 * many
    assert large < 6 * small


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe", "zb-v"])
def test_spans_are_called_by_their_actions(explorer: Explorer, schedule: str) -> None:
    state = ExplorerState.of({**STATE, "schedule": schedule})
    orders = explorer.run(explorer.inputs(state)).timeline.graph.schedule.tokens()
    lanes = unfolded(explorer.shown(state)["lanes"])
    named = set(zip(lanes["row"], lanes["words"], strict=True))
    assert {(row, token) for row, order in enumerate(orders) for token in order} <= named
    assert (0, "after the pipeline") in named


def test_of_too_many_tasks_those_of_a_part_are_shown(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepsim.show.page.lanes._MOST_TASKS", 1000)
    state = ExplorerState.of(STATE)
    every: Any = explorer.tasks(state, 0, 1 << 60)["tasks"]
    assert every["too_many"]
    timeline = explorer.run(explorer.inputs(state)).timeline
    low = int(timeline.end.max()) // 3
    high = low + low // 99
    part: Any = explorer.tasks(state, low, high)["tasks"]
    spans = timeline.spans()
    rows = [zip(each.start_ps.tolist(), each.end_ps.tolist(), strict=True) for each in spans]
    expected = [(start, end) for row in rows for start, end in row if end > low and start < high]
    tasks = unfolded(part)
    assert [*zip(tasks["start"], tasks["end"], strict=True)] == expected


@pytest.mark.parametrize("low", [None, "1", 1.5, True])
def test_times_that_are_no_whole_numbers_are_refused(explorer: Explorer, low: object) -> None:
    question = {"kind": "tasks", "state": STATE, "low": low, "high": 5}
    found = Answers(explorer=explorer).answer(question)
    assert "low is" in str(found["error"])


WORKLOAD = Path(__file__).parents[3] / "workloads" / "gpt_tp4.txt"


@pytest.fixture(
    scope="module",
    params=[*product(["1f1b", "interleaved:2", "zb-h1", "zb-v"], [True, False])],
    ids=lambda param: f"{param[0]}-{'folded' if param[1] else 'whole'}",
)
def step(request: pytest.FixtureRequest) -> stepsim.Result:
    schedule, fold = request.param
    return stepsim.simulate(
        WORKLOAD, "hgx-h100", npus=32, pp=4, microbatches=8, schedule=schedule, fold_ranks=fold
    )


def test_tasks_begin_after_what_they_wait_for_and_ends_of_messages_name_each_other(
    step: stepsim.Result,
) -> None:
    found: Any = tasks_of_timeline(step.timeline, step.report)
    tasks, stages = unfolded(found), [row.split(",")[0] for row in found["rows"]]
    row, words, end = tasks["row"], tasks["words"], tasks["end"]
    crossing = 0
    for i, before in ((i, before) for i, waits in enumerate(tasks["waits"]) for before in waits):
        if row[before] == row[i]:
            assert end[before] <= tasks["start"][i]
            continue
        crossing += 1
        assert words[i] == f"receive from {stages[row[before]]}"
        assert words[before] == f"send to {stages[row[i]]}"
        assert end[before] == end[i]
    assert crossing == sum(each.startswith("receive") for each in words)
    told = [found["comms"][comm] for comm in tasks["comm"] if comm >= 0]
    assert {use.group for use in step.report.comms} == {each[0].split()[0] for each in told}


def test_the_marked_spans_are_the_critical_path(step: stepsim.Result) -> None:
    """Those of tasks one after the other, those of actions with all that is on it."""
    whole, parts = lanes_of_timeline(step.timeline), tasks_of_timeline(step.timeline)
    tasks, lengths = unfolded(parts), list[int]()
    for start, end, on in zip(tasks["start"], tasks["end"], tasks["critical"], strict=True):
        lengths += [end - start] * on
    path = step.report.critical_path_ps
    assert sum(lengths) == step.report.step_time_ps == sum(path.values())
    actions = unfolded(whole)
    marked = zip(actions["end"], actions["critical"], strict=True)
    assert max(end for end, on in marked if on) == step.report.step_time_ps
