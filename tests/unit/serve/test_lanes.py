"""What a page draws of a run: what spans wait for, its tasks, the load of its network."""

import json
from typing import Any

import pytest
from serving import unfolded

from stepsim.serve.answers import Answers
from stepsim.serve.explorer import Explorer
from stepsim.serve.lanes import shown_actors
from stepsim.serve.library import NamedNouns
from stepsim.serve.state import ExplorerState

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
def test_tasks_of_a_part_are_those_of_the_run(
    explorer: Explorer, shown: Any, change: dict[str, str]
) -> None:
    state, step = ExplorerState.of(STATE | change), shown["step_ps"]
    low, high = step // 3, step // 3 + step // 20
    found: Any = explorer.tasks(state, low, high)
    spans = explorer.run(explorer.inputs(state)).timeline.spans()
    expected = sorted(
        row
        for table in spans
        for row in zip(
            *(getattr(table, f"{each}_ps").tolist() for each in ("start", "end", "alone")),
            strict=True,
        )
        if row[1] > low and row[0] < high
    )
    shown_rows = zip(*(found[each] for each in ("start", "end", "alone")), strict=True)
    assert sorted(shown_rows) == expected
    assert {"compute", "tp"} <= set(found["lanes"])


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


def test_too_many_tasks_are_left_out(explorer: Explorer) -> None:
    state = ExplorerState.of({**STATE, "global_batch": "512"})
    assert explorer.tasks(state, 0, 1 << 60)["too_many"]


@pytest.mark.parametrize("low", [None, "1", 1.5, True])
def test_times_that_are_no_whole_numbers_are_refused(explorer: Explorer, low: object) -> None:
    question = {"kind": "tasks", "state": STATE, "low": low, "high": 5}
    found = Answers(explorer=explorer).answer(question)
    assert "low is" in str(found["error"])
