"""Values of sliders, the map of plans and what would help hold when they are simulated."""

import random
from pathlib import Path
from typing import Any

import pytest
from helpers import few

from stepsim.base.errors import PlanError
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.sliders import interleaved_names
from stepsim.serve.state import ExplorerState
from stepsim.step.prepared import prepare

WORKLOADS = Path(__file__).parents[3] / "workloads"
DENSE = {
    "workload": "llama-3.2-3b",
    "topology": "hgx-h100",
    "npus": "16",
    "tp": "2",
    "pp": "2",
    "global_batch": "32",
}
SPARSE = {
    "workload": "qwen3-30b-a3b",
    "topology": "hgx-h100",
    "npus": "32",
    "global_batch": "64",
    "pp": "2",
    "ep": "4",
}
FILE = {"workload": "moe_128.txt", "topology": "hgx-h100"}
TOO_LARGE = {**DENSE, "workload": "llama-3-70b", "tp": "2", "pp": "2"}


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    library = NamedNouns()
    library.open(WORKLOADS / "moe_128.txt")
    return Explorer(library=library)


def runs(explorer: Explorer, texts: dict[str, str]) -> Any:
    """The job of a state, made up to its simulation; raises where it cannot run."""
    job = explorer.inputs(ExplorerState.of(texts))
    return prepare(job)


@pytest.mark.parametrize("texts", [DENSE, SPARSE, FILE], ids=["dense", "sparse", "file"])
@pytest.mark.parametrize("seed", few(range(20), 0))
def test_every_value_of_a_slider_can_run(
    explorer: Explorer, texts: dict[str, str], seed: int
) -> None:
    found: Any = explorer.sliders(ExplorerState.of(texts))
    rng = random.Random(seed)
    for slider in found["sliders"]:
        assert slider["now"] in slider["values"]
        assert slider["values"] == sorted(set(slider["values"]))
        value = rng.choice([each for each in slider["values"] if each not in slider["unable"]])
        other = {"layout": ""} if slider["name"] == "pp" else {}
        assert runs(explorer, {**texts, **found["held"], **other, slider["name"]: str(value)})
    name = rng.choice(found["schedules"])
    assert runs(explorer, {**texts, "schedule": name}).graph.schedule.label.startswith(
        name.partition(":")[0]
    )


def test_a_value_that_cannot_run_is_marked(explorer: Explorer) -> None:
    found: Any = explorer.sliders(ExplorerState.of(DENSE))
    unable = {slider["name"]: slider["unable"] for slider in found["sliders"]}
    for name, wrong in (("tp", 16), ("npus", 6), ("pp", 6)):
        assert wrong in unable[name]
        with pytest.raises(PlanError):
            runs(explorer, {**DENSE, name: str(wrong)})


def test_a_job_that_cannot_run_is_mended_by_its_sliders(explorer: Explorer) -> None:
    texts = {**DENSE, "tp": "3"}
    found: Any = explorer.sliders(ExplorerState.of(texts))
    tp = next(slider for slider in found["sliders"] if slider["name"] == "tp")
    assert tp["now"] == 3
    for value in set(tp["values"]) - {3, *tp["unable"]}:
        assert runs(explorer, {**texts, "tp": str(value)})


def test_a_plan_by_default_is_held_with_all_that_it_sets(explorer: Explorer) -> None:
    texts = {"workload": "deepseek-v3", "topology": "gb200-nvl72", "npus": "576"}
    found: Any = explorer.sliders(ExplorerState.of(texts))
    assert found["held"]["schedule"].startswith("interleaved:")
    step, held = (
        runs(explorer, known).memory.fullest.total for known in (texts, {**texts, **found["held"]})
    )
    assert step == held


def test_interleaved_schedules_have_even_chunks(explorer: Explorer) -> None:
    work = explorer.library.workload("llama-3.2-3b")
    assert interleaved_names(work, 2) == ["interleaved:2", "interleaved:7"]


def test_the_map_of_plans_is_near_what_is_simulated(explorer: Explorer) -> None:
    plain = {**DENSE, "schedule": "1f1b", "microbatch_size": "1"}
    found: Any = explorer.plans(ExplorerState.of(plain))
    assert [(cell["tp"], cell["pp"]) for cell in found["cells"] if cell["now"]] == [(2, 2)]
    assert {cell["tp"] for cell in found["cells"]} == {1, 2, 4, 8}
    for cell in found["cells"]:
        if cell["tp"] * cell["pp"] not in (2, 4):
            continue
        split = {name: str(cell[name]) for name in ("tp", "pp")}
        shown: Any = explorer.shown(ExplorerState.of({**plain, **split}))
        assert cell["step_ps"] == pytest.approx(shown["step_ps"], rel=0.05)
        assert cell["fits"] == (shown["memory"]["full"] <= 1)


def test_plans_that_do_not_fit_are_marked(explorer: Explorer) -> None:
    found: Any = explorer.plans(ExplorerState.of(TOO_LARGE))
    assert [cell["fits"] for cell in found["cells"] if cell["tp"] == cell["pp"] == 2] == [False]
    with pytest.raises(PlanError, match="expected a model"):
        explorer.plans(ExplorerState.of(FILE))


@pytest.mark.parametrize("texts", [DENSE, FILE], ids=["model", "file"])
def test_what_would_help_saves_what_it_says(explorer: Explorer, texts: dict[str, str]) -> None:
    state = ExplorerState.of(texts)
    now = explorer.run(explorer.inputs(state)).report.step_time_ps
    found: Any = explorer.helps(state)
    assert found["rows"]
    steps = [row["step_ps"] for row in found["rows"]]
    assert steps == sorted(steps)
    for row in found["rows"]:
        other = explorer.inputs(ExplorerState.of({**texts, **row["change"]}))
        assert explorer.run(other).report.step_time_ps == row["step_ps"] == now - row["saved_ps"]
        assert row["saved_ps"] > 0


def test_of_a_job_that_does_not_fit_only_what_fits_helps(explorer: Explorer) -> None:
    found: Any = explorer.helps(ExplorerState.of(TOO_LARGE))
    for row in found["rows"]:
        shown: Any = explorer.shown(ExplorerState.of({**TOO_LARGE, **row["change"]}))
        assert row["mends"]
        assert shown["memory"]["full"] <= 1


def test_the_page_opens_with_a_job_that_fits(explorer: Explorer) -> None:
    empty = Explorer(library=NamedNouns())
    start: Any = empty.choices()["start"]
    shown: Any = explorer.shown(ExplorerState.of(start))
    assert shown["memory"]["words"] == ""
    assert len(shown["lanes"]["rows"]) > 1
    given: Any = explorer.choices()["start"]
    assert given == {"workload": "moe_128.txt"}
