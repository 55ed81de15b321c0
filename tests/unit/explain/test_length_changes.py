"""What unequal lengths cost a profiled run: replayed, not computed by a formula."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from profiles import made_rows, with_works, write_rows

from stepsim import cli
from stepsim.base.arrays import Floats
from stepsim.explain.changes.lengths import (
    UnequalLengths,
    equal_times,
    told_works,
    unequal_lengths,
)
from stepsim.explain.changes.made import UntoldChange
from stepsim.files.measured import load_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.works import microbatch_works
from stepsim.parallel.packers.balanced import swap_works
from stepsim.runs.improve import change_profile, changes_of, improve_profile

pytest.importorskip("pyarrow")

STEPS = 96
WORKS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "gamma": lambda draws: draws.gamma(4.0, 0.25, (STEPS, 4, 4)),
    "long tail": lambda draws: np.minimum(draws.lognormal(-0.1, 0.45, (STEPS, 4, 4)), 2.2),
    "two kinds": lambda draws: np.where(draws.random((STEPS, 4, 4)) < 0.2, 1.8, 0.8),
}


@cache
def skeleton(folder: Path, stages: int, replicas: int = 4) -> Profile:
    rows = made_rows(stages=stages, replicas=replicas, microbatches=4, steps=STEPS)
    return load_profile(write_rows(rows, folder / f"{stages}-{replicas}.parquet"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


def noisy(profile: Profile, works: Floats, seed: int = 0) -> Profile:
    generator = np.random.default_rng(seed)
    factor = np.exp(generator.normal(0, 0.03, len(profile.events)))
    return with_works(profile, works, factor=factor)


def judged(profile: Profile, *numbers: int) -> UnequalLengths:
    waits = pipeline_waits(profile.of_steps(*numbers), posted=True)
    works = microbatch_works(waits.profile)
    times = [(waits.own_ps, waits.delay_ps), equal_times(waits, works)]
    return unequal_lengths(works, *waits.of_times(times).T)


@pytest.mark.parametrize("stages", [1, 4])
def test_waiting_is_what_equal_microbatches_take_less(folder: Path, stages: int) -> None:
    works = WORKS["gamma"](np.random.default_rng(3))
    works /= works.mean(axis=(1, 2), keepdims=True)
    profile, equal = (noisy(skeleton(folder, stages), x) for x in (works, np.ones_like(works)))
    ran, even = (each.step_times_ps().mean() for each in (profile, equal))
    found = judged(profile, *range(10, 10 + STEPS))
    assert found.waiting == pytest.approx(1 - even / ran, abs=0.02)


@pytest.mark.parametrize(("law", "stages"), [("gamma", 1), ("long tail", 4), ("two kinds", 4)])
def test_swapped_microbatches_are_the_job_that_ran_so(folder: Path, law: str, stages: int) -> None:
    """The replayed step is that of the same job whose loader had swapped them."""
    works = WORKS[law](np.random.default_rng(5))
    works /= works.mean()
    profile, other = (
        noisy(skeleton(folder, stages), each, seed)
        for seed, each in enumerate((works, swap_works(works)))
    )
    change = next(c for c in improve_profile(profile).changes if c.name == "swap-microbatches")
    assert change.step_ps == pytest.approx(other.step_times_ps().mean(), rel=0.03)
    assert change.gain <= change.ceiling
    again = change_profile(profile, "swap-microbatches")
    assert again.step_times_ps().mean() == pytest.approx(change.step_ps, rel=1e-6)


def test_the_control_job_waits_for_nothing(shared: Path) -> None:
    path = shared / "reference/profiles/ndtimeline/trace-ST.parquet"
    found = improve_profile(load_profile(path)).lengths
    assert found
    assert found.longest_over_mean < 1.01
    assert abs(found.waiting) < 0.01
    words = CliRunner().invoke(cli.make_app(), ["improve", str(path), "-q"]).stdout
    assert "\nequal lengths: the replica with most work has 1.003 times the mean" in words


def test_what_cannot_be_told_is_said(folder: Path, shared: Path) -> None:
    trace = skeleton(folder, 4, 1)
    alone = next(
        change
        for change in changes_of(pipeline_waits(trace, posted=True), told_works(trace))
        if change.name == "swap-microbatches"
    )
    assert alone == UntoldChange(name="swap-microbatches", why="one replica was traced")
    found = improve_profile(
        load_profile(shared / "reference/profiles/kineto/hta_nccl_data.json.gz")
    )
    assert found.lengths is None
    reasons = {each.name: each.why for each in found.untold}
    assert reasons["swap-microbatches"] == "the PyTorch profiler names no microbatches of computes"
