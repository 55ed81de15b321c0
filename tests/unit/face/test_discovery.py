"""What a shell, an editor and a notebook find out about the interface, and what a result says."""

import subprocess
import sys
import warnings
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import uniform_workload

import stepsim
from stepsim.base.units import PS_PER_S
from stepsim.face.keywords import StepKeywords
from stepsim.face.steps import simulate
from stepsim.options import ALIASES, OPTIONS

SMALL: dict[str, Any] = {"npus": 16, "tp": 2, "global_batch": 32, "sequence": 2048}
WORK = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=4)


@pytest.fixture(scope="module")
def step() -> stepsim.Result:
    return stepsim.simulate("llama-3.2-1b", "hgx-h100", **SMALL)


def test_dir_lists_the_public_names() -> None:
    assert {name for name in dir(stepsim) if not name.startswith("_")} == {
        name for name in stepsim.__all__ if not name.startswith("_")
    }


def test_importing_stepsim_imports_nothing_else() -> None:
    code = (
        "import sys, stepsim; dir(stepsim);"
        "print([n for n in sys.modules if n.startswith(('stepsim.', 'numpy', 'pandas'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["simulate", "compare", "sensitivity", "noise", "sweep", "plan"])
def test_help_and_completion_know_every_option(name: str) -> None:
    function = getattr(stepsim, name)
    own = {"model"} if name in ("noise", "plan") else set()
    assert set(signature(function).parameters) >= OPTIONS.keys() - own
    told = function.__doc__
    assert all(f"    {option}" in told for option in OPTIONS)
    assert "host_overhead: " in told
    assert "a time such as '250 us', or a" in told
    assert "npus or gpus: " in told


def test_types_of_options_are_those_that_there_are() -> None:
    assert set(StepKeywords.__annotations__) == OPTIONS.keys() | ALIASES.keys()
    assert simulate.__annotations__["options"].__args__ == (StepKeywords,)


def test_a_result_says_what_it_is_worth(step: stepsim.Result) -> None:
    rates = step.report.throughput
    assert rates
    assert (step.mfu, step.tokens_per_s) == (rates.mfu, rates.tokens_per_s)
    assert step.memory
    assert step.memory.total_bytes == rates.memory_bytes
    assert step.memory.fits
    assert step.warnings == step.report.said
    assert f"{rates.mfu:.1%}" in repr(step)
    plain = stepsim.simulate(WORK, "ring")
    assert (plain.mfu, plain.tokens_per_s) == (None, None)


def test_warnings_are_raised_once_per_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", stepsim.StepsimWarning)
        for _ in range(3):
            found = stepsim.simulate("llama-3.2-1b", "hgx-h100", **SMALL)
    assert found.warnings
    assert [str(each.message) for each in caught] == list(found.warnings)
    assert {each.category for each in caught} == {stepsim.StepsimWarning}
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}


def test_a_notebook_shows_the_answer_before_the_tables(step: stepsim.Result) -> None:
    html = step._repr_html_()
    first = [html.index(text) for text in ("per step", "tokens/s", "MFU", "memory", "step time")]
    assert first == sorted(first)
    assert "does not fit" not in html


def test_inspect_and_the_list_of_models() -> None:
    assert "llama-3-8b" in stepsim.list_models()
    machine = stepsim.inspect("hgx-h100")
    assert "nvlink" in repr(machine)
    assert machine.to_frame("links, one direction each")["links"].tolist() == ["nvlink", "fabric"]
    assert stepsim.inspect(stepsim.load_topology("hgx-h100")).shown == machine.shown
    assert "bf16" in repr(stepsim.inspect("h100"))
    assert "megatron" in repr(stepsim.inspect("megatron-core")).lower()
    assert "job" in stepsim.inspect("llama-3.2-1b", **SMALL).to_frame()["name"].tolist()
    assert stepsim.inspect(WORK, "ring").to_dict()["facts"]["name"]


def test_a_sweep_says_what_its_steps_are_worth() -> None:
    axes = {"tp": [1, 2], "fabric.bandwidth": ["100 Gbps", "200 Gbps", "300 Gbps", "400 Gbps"]}
    asked = {name: value for name, value in SMALL.items() if name != "tp"}
    frame = stepsim.sweep("llama-3.2-1b", "hgx-h100", axes=axes, **asked).to_frame()
    assert set(frame.columns) >= {"tokens_per_s", "mfu", "memory_bytes", "compute_ps"}
    tokens = 32 * 2048 / (frame["step_time_ps"] / PS_PER_S) / 16
    np.testing.assert_allclose(frame["tokens_per_s"], tokens)
    for row in frame.to_dict("records"):
        numbers = {"fabric.bandwidth": row["fabric.bandwidth_bytes_per_s"]}
        network = stepsim.load_topology("hgx-h100", numbers=numbers)
        found = stepsim.simulate("llama-3.2-1b", network, **asked, tp=row["tp"])
        assert found.memory
        assert row["mfu"] == pytest.approx(found.mfu)
        assert row["memory_bytes"] == found.memory.total_bytes


def test_a_sweep_of_no_model_has_no_worth() -> None:
    frame = stepsim.sweep(WORK, "ring", axes={"host_overhead": [0, 0.001]}).to_frame()
    assert frame["mfu"].isna().all()
    assert frame["memory_bytes"].isna().all()
    assert (frame["compute_ps"] > 0).all()


def test_oversubscription_is_an_axis_and_is_what_the_links_between_switches_have() -> None:
    axes = {"fabric.oversubscription": [1, 2, 4], "fabric.bandwidth": ["200 Gbps", "400 Gbps"]}
    found = stepsim.sweep("llama-3.2-1b", "spectrum-x-h100", axes=axes, npus=128, tp=1)
    assert len(found.to_frame()) == 6
    plain = stepsim.load_topology("spectrum-x-h100", 1024)
    times = []
    for over in (1, 2, 4):
        network = stepsim.load_topology(plain, numbers={"fabric.oversubscription": over})
        links = {link.name: link.bandwidth for link in network.link_classes}
        assert links["fabric-up"] == links["fabric"] / over
        ranks = range(0, 1024, 8)
        times.append(stepsim.collective_time(network, "all_to_all", 2**30, ranks, "direct"))
    assert times == sorted(times)
    assert times[2] > 1.5 * times[0]
    with pytest.raises(stepsim.StepsimError, match=r"fabric.oversubscription: topology hgx-h100"):
        stepsim.sweep(WORK, "hgx-h100", axes={"fabric.oversubscription": [1, 2]})
