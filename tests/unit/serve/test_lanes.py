"""What a page draws of a run: its spans, what they wait for, the load of its network."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from serving import unfolded

import stepsim
from stepsim.base.axes import ParallelAxis
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.state import ExplorerState
from stepsim.views.lanes import lanes_of_timeline, tasks_of_timeline

WORKLOAD = Path(__file__).parents[3] / "workloads" / "gpt_tp4.txt"
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


@pytest.fixture(scope="module", params=product(("1f1b", "interleaved:2", "zb-v"), (True, False)))
def step(request: pytest.FixtureRequest) -> stepsim.Result:
    schedule, fold = request.param
    return stepsim.simulate(
        WORKLOAD, "hgx-h100", npus=32, pp=4, microbatches=8, schedule=schedule, fold_ranks=fold
    )


@pytest.fixture(scope="module", params=[True, False], ids=["actions", "tasks"])
def whole(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def drawn(step: stepsim.Result, whole: bool) -> Any:
    draw = lanes_of_timeline if whole else tasks_of_timeline
    found: Any = draw(step.timeline)
    return {**found, **unfolded(found)}


def test_spans_are_those_of_the_run(drawn: Any, step: stepsim.Result, whole: bool) -> None:
    tables = list(step.timeline.spans(whole=whole))
    for name in ("start", "end") if whole else ("start", "end", "alone"):
        ran = [time for spans in tables for time in getattr(spans, f"{name}_ps").tolist()]
        assert drawn[name] == ran
    assert drawn["row"] == [i for i, spans in enumerate(tables) for _ in spans.start_ps]
    if not whole:
        streams = [each.stream_words(n) for each in tables for n in each.stream.tolist()]
        named = {s: drawn["lanes"][lane] for s, lane in zip(streams, drawn["lane"], strict=True)}
        assert named.items() >= {"compute": "kernels", "pp forward recv": "receipts"}.items()


def test_spans_begin_after_what_they_wait_for_and_ends_of_messages_name_each_other(
    drawn: Any,
) -> None:
    stages = [row.split(",")[0] for row in drawn["rows"]]
    row, words, end = drawn["row"], drawn["words"], drawn["end"]
    crossing = 0
    for i, before in ((i, before) for i, waits in enumerate(drawn["waits"]) for before in waits):
        if row[before] == row[i]:
            assert end[before] <= drawn["start"][i]
            continue
        crossing += 1
        assert words[i] == f"receive from {stages[row[before]]}"
        assert words[before] == f"send to {stages[row[i]]}"
        assert end[before] == end[i]
    assert crossing == sum(each.startswith("receive") for each in words)


def test_the_marked_tasks_are_the_critical_path(step: stepsim.Result) -> None:
    tasks = unfolded(tasks_of_timeline(step.timeline))
    columns = zip(tasks["start"], tasks["end"], tasks["critical"], strict=True)
    path = step.report.critical_path_ps
    assert sum((end - start) * on for start, end, on in columns) == sum(path.values())


def test_spans_are_called_by_their_actions(step: stepsim.Result) -> None:
    lanes = lanes_of_timeline(step.timeline)
    columns = unfolded(lanes)
    named = set(zip(columns["row"], columns["words"], strict=True))
    stages = step.timeline.actors.stages.tolist()
    orders = step.timeline.graph.schedule.tokens()
    assert {(row, token) for row, stage in enumerate(stages) for token in orders[stage]} <= named
    assert (0, "optimizer and gradient sync") in named


def test_transfers_say_what_they_send(step: stepsim.Result) -> None:
    found: Any = tasks_of_timeline(step.timeline, step.report)
    told = {found["comms"][comm] for comm in found["classes"]["comm"] if comm >= 0}
    assert {f"{use.group} {use.kind}" for use in step.report.comms} == {
        each.partition(",")[0] for each in told
    }


def test_spans_say_which_axes_they_use(shown: Any) -> None:
    lanes, axes = shown["lanes"], ParallelAxis
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
        link["name"]: {name for i, name in enumerate(ParallelAxis) if link["axes"] >> i & 1}
        for link in network["links"]
    }
    assert carried == {"nvlink": {"tp", "dp"}, "fabric": {"pp"}}, "a stage is a node"
    assert [level["size"] for level in network["levels"]] == [8, 4]
    assert all(0 < link["share"] < 1 for link in network["links"])


def test_an_answer_grows_slower_than_its_microbatches(explorer: Explorer) -> None:
    sizes = []
    for batch in ("64", "512"):
        state = ExplorerState.of({**STATE, "global_batch": batch})
        lanes: Any = explorer.shown(state)["lanes"]
        sizes.append((len(lanes["of"]), len(json.dumps(lanes, separators=(",", ":")))))
    (few, small), (many, large) = sizes
    assert many > 6 * few
    assert large < 11 * many
    assert large < 6 * small


def test_of_too_many_tasks_those_of_a_part_are_shown(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all of them, as the engine has them."""
    state = ExplorerState.of({**STATE, "compute_scale": "1.7"})
    timeline = explorer.run(explorer.inputs(state)).timeline
    low = int(timeline.end.max()) // 3
    high = low + low // 9
    every: Any = explorer.tasks(state, low, high)["tasks"]
    assert every == tasks_of_timeline(timeline)
    monkeypatch.setattr("stepsim.views.lanes._MOST_TASKS", 1000)
    none: Any = explorer.tasks(state, 0, 1 << 60)["tasks"]
    assert none["too_many"]
    part: Any = explorer.tasks(state, low, high)["tasks"]
    rows = [
        [*zip(each["start"], each["end"], strict=True)] for each in map(unfolded, (every, part))
    ]
    assert rows[1] == [(start, end) for start, end in rows[0] if end > low and start < high]


@pytest.mark.parametrize("low", [None, "1", 1.5, True])
def test_times_that_are_no_whole_numbers_are_refused(explorer: Explorer, low: object) -> None:
    question = {"kind": "tasks", "state": STATE, "low": low, "high": 5}
    found = explorer.answer(question)
    assert "low is" in str(found["error"])
