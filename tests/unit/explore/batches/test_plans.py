"""Plans judged by drawn batches: by their mean step for as many tokens net of padding."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

import stepsim
from stepsim.base.errors import PlanError

LAW = "0.97 fixed(length=512) + 0.03 fixed(length=8192)"
ASKED: dict[str, Any] = {"gpus": 16, "sequence": 8192, "global_batch": 64, "runs": 6}


@pytest.fixture(scope="module")
def found() -> Any:
    return stepsim.plan("llama-3-8b", lengths=LAW, packer="concat", steps=20, **ASKED)


@pytest.mark.filterwarnings("ignore")
def test_plans_stand_in_the_order_of_their_drawn_steps(found: Any) -> None:
    assert found.lengths == LAW
    assert found.packer == "concat"
    assert all(plan.drawn is not None for plan in found.plans)
    first, *others = (plan.drawn.full_ps for plan in found.plans)
    assert first <= min(others)
    rates = [plan.tokens_per_s_per_npu for plan in found.plans]
    assert rates == pytest.approx([p.drawn.tokens_per_s / p.npus for p in found.plans], rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_the_drawn_steps_of_a_plan_are_those_of_the_study(found: Any) -> None:
    best = found.plans[0]
    options = {k: v for k, v in best.options.items() if k not in ("npus", "sequence")}
    (steps,) = stepsim.batches(
        "llama-3-8b",
        lengths=LAW,
        packers=["concat"],
        steps=20,
        npus=16,
        sequence=8192,
        **options,
    ).packed
    assert best.drawn.mean_ps == round(steps.mean_ps)
    assert best.drawn.p90_ps == round(steps.percentile_ps(90))


@pytest.mark.filterwarnings("ignore")
def test_full_sequences_judge_as_ever() -> None:
    plain = stepsim.plan("llama-3-8b", **ASKED)
    drawn = stepsim.plan("llama-3-8b", lengths=[8192], packer="sequence", steps=1, **ASKED)
    best = drawn.plans[0]
    assert best.options == plain.plans[0].options
    assert best.drawn is not None
    assert best.drawn.mean_ps == plain.plans[0].step_time_ps
    assert not drawn.equal_lengths


def test_what_was_judged_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ("llama-3-8b", "--gpus", "16", "--sequence", "8192", "--global-batch", "64")
    more = ("--runs", "2", "--lengths", LAW, "--steps", "10")
    code, out, _ = run("plan", *asked, *more, "--json", path)
    assert code == 0
    assert f"judged by documents from {LAW}, packer first-fit: mean step " in out
    assert "full sequences" in out
    assert json.loads(path.read_text())["plans"][0]["drawn"]["mean_ps"] > 0
    for arguments, said in (
        (("--packers", "first-fit,padded"), "packer is 'first-fit,padded': expected one of"),
        (("--packers", "best"), "packer is 'best': expected one of"),
        (("--explain", "tp=2"), "explain compares steps of full sequences"),
    ):
        code, _, err = run("plan", *asked, *more, *arguments)
        assert code == 2
        assert said in err.splitlines()[-1]


@pytest.mark.filterwarnings("ignore")
def test_python_refuses_packers_that_there_are_not() -> None:
    with pytest.raises(PlanError, match="packer is 'best'"):
        stepsim.plan("llama-3-8b", lengths=LAW, packer="best", **ASKED)
