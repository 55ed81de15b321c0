"""Sensitivities against differences, and noise."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run, collective, examples, row, uniform_workload
from hypothesis import given
from pairs import pairwise
from random_jobs import Job, jobs, networks

import stepsim
from stepsim.base.axes import CollectiveKind, Group, degrees_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.explore.noise.draws import NoiseModel
from stepsim.explore.sensitivity import Sensitivity
from stepsim.face.steps import noise, sensitivity, simulate
from stepsim.network.topology import (
    Dimension,
    DimensionKind,
    LinkClass,
    NestedTopology,
    Topology,
)
from stepsim.workload.rows import Work, Workload
from stepsim.workload.scaling import ComputeScale

ROOT = Path(__file__).resolve().parents[3]
GPT = ROOT / "workloads" / "gpt_tp4.txt"
WORKLOADS = sorted((ROOT / "workloads").glob("*.txt"))


def check_slopes(found: Sensitivity, rounding_ps: float) -> None:
    """Faster links and less compute are never slower, and phases add up to all compute."""
    for slope in found.slopes:
        step = max(slope.value * 1e-3, 1.0 if slope.value > 1.5 else 0.0)
        sign = -1 if slope.faster_is_more else 1
        assert min(slope.below * sign, slope.above * sign) >= -rounding_ps / step
    slopes = {slope.name: slope for slope in found.slopes}
    phases = [slope for name, slope in slopes.items() if name.startswith("compute_scale.")]
    if phases and not any(each.one_sided for each in (*phases, slopes["compute"])):
        whole, parts = slopes["compute"].derivative, sum(each.derivative for each in phases)
        assert parts == pytest.approx(whole, rel=0.01, abs=4e3 * rounding_ps + 4e3)


JOBS: dict[str, Sequence[Any]] = {
    "file": WORKLOADS,
    "topology": ("hgx-h100", "ring"),
    "schedule": ("1f1b", "zb-h1"),
    "microbatches": (8,),
}


@pytest.mark.parametrize("job", pairwise(JOBS))
def test_shipped_jobs(job: dict[str, Any]) -> None:
    check_job(**job)


def check_job(file: Path, topology: str, schedule: str, microbatches: int) -> None:
    """Slopes of a shipped file are differences of steps, and the step is that of `simulate`."""
    job: dict[str, Any] = {"workload": file, "topology": topology, "schedule": schedule}
    job |= {"microbatches": microbatches, "host_overhead": "250 us"}
    found = sensitivity(**job)
    assert found.step_time_ps == simulate(**job).report.step_time_ps
    check_slopes(found, rounding_ps=0.0 if "hgx" in topology else 500.0)
    assert not all(slope.one_sided for slope in found.slopes)


def test_compute_that_is_scaled_and_slowed_has_the_slopes_of_its_own_scale() -> None:
    """Overlap costs compute nothing where there is none: slopes are those without it."""
    work = uniform_workload(forward=1_000_000, backward=2_000_000, pp=1, microbatches=2)
    plain, slowed = (
        sensitivity(work, "hgx-h100", compute_scale=2, overlap_cost=on).slopes
        for on in (None, "on")
    )
    assert [each.gain for each in slowed] == pytest.approx([each.gain for each in plain])


@examples(80)
@given(job=jobs(), network=networks())
def test_random_jobs(job: Job, network: Topology) -> None:
    check_slopes(sensitivity(job.workload, network, **job.options()), rounding_ps=2_000.0)


def tied_job(weight_grad_ps: int) -> tuple[Workload, Topology]:
    """A collective of 1 us beside a weight gradient: what takes longer sets the step time."""
    op = collective(200_000, Group.TP, CollectiveKind.ALL_GATHER)
    gathered = replace(
        row(10_000_000, 0, weight_grad_ps), input_grad=Work(compute_ps=1_000, comms=(op,))
    )
    workload = uniform_workload(forward=1, backward=1, pp=1, microbatches=1)
    block = replace(workload.microbatches[0], layers=((gathered,),))
    workload = replace(workload, microbatches=(block,), degrees=degrees_of(tp=2), npus=2)
    link = LinkClass(name="wire", latency_ps=0, bandwidth=1e11)
    dimension = Dimension(kind=DimensionKind.FULLY_CONNECTED, size=2, link=link)
    return workload, NestedTopology(name="pair", source="test", dimensions=(dimension,))


@pytest.mark.parametrize(
    ("weight_grad_ps", "one_sided", "below", "above"),
    [
        (500_000, False, True, True),
        (1_000_000, True, True, False),
        (2_000_000, False, False, False),
    ],
)
def test_another_path_takes_over(
    weight_grad_ps: int, one_sided: bool, below: bool, above: bool
) -> None:
    found = sensitivity(*tied_job(weight_grad_ps))
    (slope,) = [slope for slope in found.slopes if slope.name == "wire.bandwidth"]
    assert slope.one_sided is one_sided
    assert (slope.below < 0, slope.above < 0) == (below, above)
    (weights,) = [s for s in found.slopes if s.name == "compute_scale.weight_grad"]
    assert (weights.below > 0, weights.above > 0) == (
        not below,
        not above or one_sided,
    ) or one_sided


def test_closed_form() -> None:
    """A job that only computes: all of the step time is compute, and none of it the network's."""
    workload = uniform_workload(forward=1_000_000, backward=2_000_000, pp=1, microbatches=4)
    found = sensitivity(workload, "hgx-h100")
    slopes = {slope.name: slope for slope in found.slopes}
    assert found.step_time_ps == 12_000_000
    assert slopes["compute"].derivative == 12_000_000
    assert slopes["compute"].gain == pytest.approx(0.01)
    assert slopes["compute_scale.forward"].elasticity == pytest.approx(1 / 3)
    assert slopes["fabric.bandwidth"].derivative == slopes["fabric.bandwidth"].gain == 0
    assert found.slopes[0].name == "compute"


def noisy(model: NoiseModel, **options: Any) -> Any:
    return noise(GPT, "hgx-h100", model=model, **options)


def test_no_noise_is_the_plan() -> None:
    found = noisy(NoiseModel(), samples=3)
    report = simulate(GPT, "hgx-h100").report
    assert found.planned_ps == report.step_time_ps
    assert found.step_time_ps.tolist() == [report.step_time_ps] * 3


def test_if_all_straggle_all_compute_is_slower() -> None:
    found = noisy(NoiseModel(straggler_probability=1.0, straggler_factor=2.0), samples=2)
    twice = ComputeScale(forward=2.0, input_grad=2.0, weight_grad=2.0)
    report = simulate(GPT, "hgx-h100", compute_scale=twice).report
    assert found.step_time_ps.tolist() == [report.step_time_ps] * 2


def test_seeds() -> None:
    model = NoiseModel(task=0.1, communication=0.2, rank=0.03)
    many, few, other = (
        noisy(model, samples=n, seed=seed).step_time_ps
        for n, seed in ((600, 7), (300, 7), (300, 8))
    )
    assert np.array_equal(many[:300], few)
    assert not np.array_equal(few, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": -0.1}, "task noise is -0.1: expected 0 to 10"),
        ({"straggler_probability": 1.5}, "straggler probability is 1.5: expected 0 to 1"),
        ({"straggler_factor": 0.0}, "straggler factor is 0.0: expected above 0"),
    ],
)
def test_impossible_models(options: dict[str, float], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{message}"):
        NoiseModel(**options)


@pytest.mark.parametrize("options", [{"samples": 0}, {"samples": 10**9}, {"seed": -1}])
def test_impossible_samples(options: dict[str, int]) -> None:
    with pytest.raises(PlanError, match=f"^{next(iter(options))} is "):
        noisy(NoiseModel(), **options)


def test_sensitivity_command(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("simulate", "--sensitivity", GPT, "--plot", tmp_path / "a.svg")
    assert code == 0
    assert "1 % more fabric bandwidth" in out
    assert (tmp_path / "a.svg").stat().st_size
    code, out, _ = run("simulate", "--sensitivity", GPT, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["step_time_ps"] == stepsim.simulate(GPT).report.step_time_ps
    assert {"compute", "nvlink.bandwidth"} <= {slope["name"] for slope in found["slopes"]}
