"""Errors of left-out sources: ranges hold four fifths of others, tables say what was compared."""

from math import exp
from pathlib import Path

import pytest
from left_out import (
    LeftOut,
    coverage,
    covering_range,
    error_tables,
    measured_range,
    pool_of,
)
from published_rows import table

from stepsim.base.structs import replace
from stepsim.files.model_steps import PublishedStep, read_published_steps


@pytest.fixture
def step(tmp_path: Path) -> PublishedStep:
    (found,), _ = read_published_steps(table(tmp_path, {}))
    return found


def rows(step: PublishedStep, source: str, logs: list[float]) -> list[LeftOut]:
    """Runs of a source that were predicted so far off, as logarithms."""
    assert step.measured_s is not None
    own = replace(step, source=source)
    return [
        LeftOut(step=own, framework="megatron-core", predicted_s=step.measured_s * exp(each))
        for each in logs
    ]


def test_a_range_holds_four_fifths_of_the_runs(step: PublishedStep) -> None:
    every = rows(step, "one", [-0.1 + 0.02 * i for i in range(11)])
    low, high = measured_range(every)
    held = [low <= exp(-row.log_ratio) <= high for row in every]
    assert sum(held) == 9
    assert low < 1 < high


def test_a_source_of_many_runs_counts_for_more_than_one_and_not_for_all(
    step: PublishedStep,
) -> None:
    many, few = rows(step, "many", [0.0] * 100), rows(step, "few", [-0.3])
    low, high = measured_range([*many, *few])
    assert (low, high) == pytest.approx((1.0, 1.0))
    assert measured_range([*many[:1], *few])[1] > high


def test_coverage_asks_other_sources_alone(step: PublishedStep) -> None:
    near = [-0.02, -0.01, 0.0, 0.01, 0.02]
    alike = [*rows(step, "one", near), *rows(step, "two", near), *rows(step, "far", [0.5])]
    assert coverage(alike) == pytest.approx(10 / 11, abs=0.2)
    assert coverage([*rows(step, "one", near), *rows(step, "far", [0.5])]) < 0.5


def test_a_range_is_widened_until_it_holds_left_out_sources(step: PublishedStep) -> None:
    spread = [-0.1 + 0.01 * i for i in range(21)]
    near = [*rows(step, "one", spread), *rows(step, "two", spread)]
    far = [*near, *rows(step, "three", [3 * each for each in spread])]
    assert covering_range(near) == pytest.approx(measured_range(near), rel=0.05)
    low, high = covering_range(far)
    assert low < measured_range(far)[0] < 1 < measured_range(far)[1] < high


def families(step: PublishedStep, *names: str) -> list[LeftOut]:
    """Runs of models of some families, predicted alike well, each of a source of its own."""
    spread = [-0.1 + 0.01 * i for i in range(21)]
    return [
        replace(row, step=replace(row.step, model=f"{name}-8b"))
        for name in names
        for row in rows(step, name, spread)
    ]


def test_tables_have_errors_of_a_device_and_no_range_of_two_families(step: PublishedStep) -> None:
    (found,) = error_tables(rows(step, "one", [0.1, -0.1, 0.0]))["megatron-core"]
    assert (found["runs"], found["experts"], found["source"]) == (3, False, "one")
    assert found["mean"] == pytest.approx((exp(0.1) - 1 + 1 - exp(-0.1)) / 3, abs=1e-3)
    assert found["median"] == pytest.approx(1 - exp(-0.1), abs=1e-3)
    assert "low" not in found
    (found,) = error_tables(families(step, "llama", "gpt"))["megatron-core"]
    assert "low" not in found


def test_frameworks_without_runs_have_the_range_of_their_kin(step: PublishedStep) -> None:
    tables = error_tables(families(step, "llama", "gpt", "qwen"))
    (own,), (kin,) = tables["megatron-core"], tables["megatron-2021"]
    assert (own["low"], own["high"]) == pytest.approx((0.92, 1.08), abs=0.02)
    assert (own["low"], own["others"], own["most_npus"]) == (kin["low"], 3, step.plan.npus)
    assert (own["runs"], "runs" in kin) == (63, False)
    assert "torch-fsdp-compiled" not in tables


def test_runs_that_disagree_are_no_pool(step: PublishedStep) -> None:
    spread = [-0.01, 0.0, 0.01]
    far = [
        replace(row, step=replace(row.step, model=name))
        for name, shift in (("llama", 0.5), ("gpt", 0.0), ("qwen", -0.5))
        for row in rows(step, name, [shift + each for each in spread])
    ]
    assert not pool_of(far, "megatron-core", "hopper", sparse=False, mixes=False)
