"""Answers of the explorer equal `stepsim.simulate`, to the picosecond."""

import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers import few
from serving import unfolded

import stepsim
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import replace
from stepsim.explain.report import Report
from stepsim.files.asked import read_inputs
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.state import ExplorerState
from stepsim.step.job import held_degrees
from stepsim.views.facts import memory_shown

WORKLOADS = Path(__file__).parents[3] / "workloads"
FILES = ("gpt_tp4.txt", "moe_128.txt")
MOE = {"workload": FILES[1], "topology": "hgx-h100"}
CHOICES: dict[str, list[str]] = {
    "schedule": ["", "gpipe", "zb-h1", "interleaved:2"],
    "microbatches": ["", "8", "16"],
    "p2p": ["", "eager", "overlap"],
    "contention": ["", "none"],
    "compute_scale": ["", "0.5", "1.3"],
    "host_overhead": ["", "250 us"],
    "fabric.bandwidth": ["", "100 Gbps", "53.2 GB/s"],
    "fabric.latency": ["", "3 us"],
    "nvlink.bandwidth": ["", "900 GB/s"],
    "nvlink.efficiency": ["", "0.5"],
}


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    library = NamedNouns()
    for name in FILES:
        library.open(WORKLOADS / name)
    return Explorer(library=library)


def asked(seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    texts = {name: rng.choice(values) for name, values in CHOICES.items()}
    return {
        "workload": rng.choice(FILES),
        "topology": rng.choice(["hgx-h100", "hgx-a100"]),
        **texts,
    }


def simulated(state: ExplorerState) -> stepsim.Result:
    network = stepsim.load_topology(state.topology, numbers=state.numbers)
    options: dict[str, Any] = dict(state.options)
    known = WORKLOADS / state.workload
    return stepsim.simulate(known if known.exists() else state.workload, network, **options)


def report_of(explorer: Explorer, state: ExplorerState) -> Report | None:
    """The report of `simulate`; None where it refuses the state, as the explorer then does."""
    try:
        return simulated(state).report
    except StepsimError as error:
        said = re.escape(str(error).removeprefix(f"{WORKLOADS}/"))
        with pytest.raises(type(error), match=said):
            explorer.shown(state)
        return None


@pytest.mark.parametrize("seed", few(range(200), *range(4)))
def test_a_state_gives_what_simulate_gives(explorer: Explorer, seed: int) -> None:
    state = ExplorerState.of(asked(seed))
    expected = report_of(explorer, state)
    if expected is None:
        return
    whole = explorer.shown(state)
    assert whole["step_ps"] == expected.step_time_ps
    found = explorer.answer({"kind": "live", "state": asked(seed)})
    if explorer.varies(state)["not_live"]:
        return
    assert found["step_ps"] == expected.step_time_ps
    assert found["facts"] == whole["facts"]
    assert found["breakdown"] == whole["breakdown"]
    quick, slow = unfolded(found["lanes"]), unfolded(whole["lanes"])
    assert quick["start"] == slow["start"]
    assert quick["end"] == slow["end"]
    assert quick.keys() == {"start", "end"}
    assert max(quick["end"]) == expected.step_time_ps
    assert len(slow["critical"]) == len(slow["start"])


MODELS: dict[str, list[str]] = {
    "workload": ["llama-3.2-1b", "qwen3-30b-a3b", "llama-3.1-8b"],
    "npus": ["16", "32"],
    "tp": ["1", "2", "8"],
    "pp": ["", "2"],
    "ep": ["", "2"],
    "sequence": ["", "512", "8192"],
    "microbatch_size": ["", "2"],
    "global_batch": ["", "64"],
    "recompute": ["", "full", "selective"],
    "precision": ["", "fp8"],
    "device": ["", "b200"],
    "zero": ["", "3"],
    "schedule": ["", "interleaved:2"],
    **{name: CHOICES[name] for name in ("compute_scale", "fabric.bandwidth", "nvlink.efficiency")},
}


def asked_of_a_model(seed: int) -> dict[str, str]:
    """A state; short sequences get a batch, since 4 million tokens are 8,192 microbatches then."""
    rng = random.Random(seed)
    texts = {name: rng.choice(values) for name, values in MODELS.items()}
    if texts["sequence"] == "512" and not texts["global_batch"]:
        texts["global_batch"] = "512"
    return {**texts, "topology": "hgx-h100"}


@pytest.mark.parametrize("seed", few(range(200), *range(3)))
def test_a_state_of_a_model_gives_what_simulate_gives(explorer: Explorer, seed: int) -> None:
    state = ExplorerState.of(asked_of_a_model(seed))
    expected = report_of(explorer, state)
    if expected is None:
        return
    found: Any = explorer.shown(state)
    assert found["step_ps"] == expected.step_time_ps
    assert expected.throughput
    facts = {fact["name"]: fact["value"] for fact in found["facts"]}
    assert facts["MFU"] == expected.throughput.mfu
    assert facts["tokens/s per GPU"] == expected.throughput.tokens_per_s
    assert found["memory"]["value"] == expected.throughput.memory_bytes
    if not explorer.varies(state)["not_live"]:
        live = explorer.live(state)
        same = ("step_ps", "facts", "breakdown")
        assert {name: live[name] for name in same} == {name: found[name] for name in same}


def test_a_model_keeps_its_plan_while_links_change(explorer: Explorer) -> None:
    """No degree is given: the plan is that of the network as its file has it."""
    job = {"workload": "llama-3.1-8b", "topology": "hgx-h100", "npus": "16", "global_batch": "64"}
    state = ExplorerState.of({**job, "fabric.bandwidth": "10 Gbps"})
    slow = explorer.inputs(state)
    bare = read_inputs(job.pop("workload"), job.pop("topology"), job)
    degrees, _ = held_degrees(replace(slow, options=bare.options))
    held, said = held_degrees(bare)
    assert {name: getattr(slow.options, name) for name in held} == held
    assert held != degrees, "the slow network alone would have another plan"
    assert said[0] in slow.notes


@pytest.mark.parametrize(
    ("held", "level"),
    [
        (919, "92%"),
        (920, "92%: close to full"),
        (1000, "100%: close to full"),
        (1001, "100%: does not fit"),
    ],
)
def test_memory_is_warned_of_before_it_is_full(held: int, level: str) -> None:
    found = memory_shown(3, {"weights": 500, "activations": held - 500}, 1000)
    assert found
    assert (found["level"], found["value"], found["stage"]) == (level, held, 3)
    assert memory_shown(0, {"weights": 1}, None) is None


def test_noise_spreads_the_step_about_what_is_planned(explorer: Explorer) -> None:
    assert explorer.live(ExplorerState.of(MOE))["band"] is None
    widths = []
    for compute, links in (("0.05", ""), ("0.2", ""), ("0.2", "0.2")):
        texts = {**MOE, "noise.compute": compute, "noise.links": links}
        found: Any = explorer.live(ExplorerState.of(texts))
        band = found["band"]
        assert band == explorer.varies(ExplorerState.of(texts))["band"]
        assert band["low"] < found["step_ps"] < band["high"]
        widths.append(band["high"] - band["low"])
    assert widths == sorted(widths)
    with pytest.raises(PlanError, match="noise of compute is 2"):
        explorer.live(ExplorerState.of({**MOE, "noise.compute": "2"}))


RECORDED = ("megatron_moe_rank0.txt", "llama_pp8_a40.txt")


@pytest.mark.parametrize("name", RECORDED)
def test_a_measured_run_is_shown_as_it_ran(name: str) -> None:
    library = NamedNouns()
    path = WORKLOADS / "measured" / name
    library.open(path)
    answers = Explorer(library=library)
    found: Any = answers.answer({"kind": "shown", "state": {"workload": name}})
    assert found["step_ps"] == stepsim.simulate_run(path).report.step_time_ps
    assert max(unfolded(found["lanes"])["end"]) <= found["step_ps"]
    assert "as it ran" in found["as_it_is"]
    assert json.loads(json.dumps(found, allow_nan=False)).keys() == found.keys()
    said = answers.answer({"kind": "live", "state": {"workload": name}})
    assert "it has run" in str(said["error"])
    lines = answers.answer({"kind": "lines", "state": {"workload": name}})
    assert lines["command"] == f"stepsim simulate {path}"


def test_a_result_is_shown_as_it_is(explorer: Explorer, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    step = stepsim.simulate("llama-3.2-1b", "hgx-h100", npus=16)
    path.write_text(step.to_json())
    name = explorer.library.open(path)
    found: Any = explorer.shown(ExplorerState.of({"workload": name}))
    fresh: Any = explorer.shown(
        ExplorerState.of({"workload": "llama-3.2-1b", "topology": "hgx-h100", "npus": "16"})
    )
    same = ("step_ps", "facts", "breakdown", "memory", "tables", "lanes")
    found, fresh = (json.loads(msgspec.json.encode(each)) for each in (found, fresh))
    assert {each: found[each] for each in same} == {each: fresh[each] for each in same}


def test_a_profile_is_replayed(shared: Path) -> None:
    file = shared / "reference" / "profiles" / "ndtimeline" / "trace-ST.parquet"
    library = NamedNouns()
    found: Any = Explorer(library=library).shown(ExplorerState.of({"workload": library.open(file)}))
    expected = stepsim.stragglers(file)
    assert found["facts"][0]["value"] == int(expected.measured_ps.mean())
    assert "replay of every step" in [each["caption"] for each in found["tables"]]
    assert len(found["lanes"]["rows"]) == 8


def test_the_critical_path_is_one_chain_over_the_whole_step(explorer: Explorer) -> None:
    found = explorer.shown(ExplorerState.of(MOE))
    lanes = unfolded(found["lanes"])
    spans = sorted(
        (start, end)
        for start, end, on in zip(lanes["start"], lanes["end"], lanes["critical"], strict=True)
        if on
    )
    assert spans[0][0] == 0
    assert max(end for _, end in spans) == found["step_ps"]
    reached = 0
    for start, end in spans:
        assert start <= reached
        reached = max(reached, end)


def test_the_map_is_what_single_states_say(explorer: Explorer) -> None:
    found: Any = explorer.map(ExplorerState.of(MOE), "fabric.bandwidth", "nvlink.bandwidth")
    assert len(found["x"]) == len(found["y"]) == len(found["step_ps"]) == 24
    assert max(map(len, found["x"])) <= len("54.73 GB/s")
    for i, j in ((0, 0), (5, 20), (23, 3)):
        texts = {"fabric.bandwidth": found["x"][i], "nvlink.bandwidth": found["y"][j]}
        single = explorer.live(ExplorerState.of({**MOE, **texts}))
        assert found["step_ps"][j][i] == pytest.approx(single["step_ps"], rel=1e-3)
    first, last = found["step_ps"][0][0], found["step_ps"][-1][-1]
    assert first > last


def test_what_cannot_be_on_the_map_is_refused(explorer: Explorer) -> None:
    state = ExplorerState.of(MOE)
    for x, y in (("fabric.bandwidth", "fabric.bandwidth"), ("pp", "fabric.bandwidth")):
        with pytest.raises(PlanError, match="cannot be an axis"):
            explorer.map(state, x, y)


def test_under_fair_contention_the_engine_answers(explorer: Explorer) -> None:
    texts = {**MOE, "contention": "fair"}
    whole = explorer.shown(ExplorerState.of(texts))
    assert "contention is fair" in str(explorer.varies(ExplorerState.of(texts))["not_live"])
    assert whole["step_ps"] == simulated(ExplorerState.of(texts)).report.step_time_ps
    with pytest.raises(PlanError, match="contention is fair"):
        explorer.worth(ExplorerState.of(texts))


@pytest.mark.parametrize("kind", ["choices", "numbers", "lines", "live", "shown", "worth"])
def test_every_answer_is_plain_data(explorer: Explorer, kind: str) -> None:
    found = explorer.answer({"kind": kind, "state": MOE})
    assert "error" not in found
    assert json.loads(json.dumps(found, allow_nan=False)).keys() == found.keys()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"kind": "rm"}, "kind is 'rm': expected one of choices, numbers"),
        (
            {"kind": "shown", "state": {"workload": "/etc/passwd"}},
            "no workload named '/etc/passwd'",
        ),
        (
            {
                "kind": "live",
                "state": {**MOE, "x.bandwidth": "1 Gbps"},
            },
            "has no links 'x'",
        ),
        ({"kind": "map", "state": {"workload": FILES[0]}, "x": 1}, "x is 1: expected a text"),
    ],
)
def test_a_mistake_is_an_answer(explorer: Explorer, question: object, said: str) -> None:
    found = explorer.answer(question)
    assert said in str(found["error"])
    assert "\n" not in str(found["error"])


def test_a_large_timeline_shows_some_stages(explorer: Explorer) -> None:
    explorer.library.open(WORKLOADS / "gpt_1024.txt")
    texts = {"workload": "gpt_1024.txt", "topology": "hgx-h100", "microbatches": "512"}
    lanes: Any = explorer.shown(ExplorerState.of(texts))["lanes"]
    assert len(lanes["of"]) <= 40_000
    assert re.match(r"first rank of \d+ of 16 stages$", lanes["left_out"])
