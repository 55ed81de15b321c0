"""Every option means the same to everything that evaluates a step, or is refused by name."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jobs import short_job
from option_values import BESIDE, OF_FILES, OF_MODELS, TYPED
from pairs import pairwise

import stepsim
from stepsim.base.errors import PlanError
from stepsim.explain.report import Report
from stepsim.explore.noise.draws import NoiseModel
from stepsim.workload.rows import Workload

UNCHANGED = {"contention", "engine", "npus", "placement"}
"""The same step time: by design, because the value is the file's, or on this network."""


REFUSED = {"activation_size", "contention", "overlap_cost"}
"""Options that evaluators of many scenarios refuse by name."""
RUN_APART = {"overlap_cost"}
"""Those with which sensitivities run every step by itself."""


@cache
def short() -> Workload:
    return short_job("moe_128", layers=5)


@cache
def simulated(beside: str, changed: str = "") -> Report:
    """A step of `short` with what an option needs, and perhaps with the option."""
    options = BESIDE.get(beside, {}) | ({changed: TYPED[changed]} if changed else {})
    return stepsim.simulate(short(), "hgx-h100", **options).report


@pytest.mark.parametrize("name", OF_FILES)
def test_an_option_changes_the_result_and_evaluators_use_it_or_refuse_it_by_name(
    name: str,
) -> None:
    check_change(name)
    options = {**BESIDE.get(name, {}), name: TYPED[name]}
    for evaluate in (slopes, draws):
        if name in REFUSED and (evaluate is draws or name not in RUN_APART):
            with pytest.raises(PlanError, match=name):
                evaluate(short(), **options)
        else:
            found = evaluate(short(), **options)
            assert found == simulated(name, name).step_time_ps, evaluate


def check_change(name: str) -> None:
    """The option changes what `simulate` gives, unless it is one of those that change nothing."""
    plain, changed = simulated(name if name in BESIDE else ""), simulated(name, name)
    if name in UNCHANGED:
        assert changed.step_time_ps == plain.step_time_ps
    elif name == "activation_size":
        held = changed.peak_activations * 2**30
        assert (plain.peak_activation_bytes, changed.peak_activation_bytes) == (None, held)
    else:
        assert changed.step_time_ps != plain.step_time_ps
    idle = [text for text in changed.warnings if "has no effect" in text]
    assert not [text for text in idle if text.startswith(f"{name} ")]


def slopes(job: Path | Workload, **options: Any) -> object:
    return stepsim.sensitivity(job, "hgx-h100", **options).step_time_ps


def draws(job: Path | Workload, **options: Any) -> object:
    found = stepsim.noise(job, "hgx-h100", model=NoiseModel(), samples=1, **options)
    return found.planned_ps


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"schedule": "interleaved:2", "microbatches": 8, "group_size": 8},
    {"schedule": "interleaved:2", "microbatches": 8, "warmup_flush": True},
    {"schedule": "interleaved", "microbatches": 8, "chunks": 4, "deallocate_outputs": True},
    {"schedule": "auto-zb", "microbatches": 16, "memory_limit": 1},
]
OF_ONE_SCHEDULE = {name for options in SCHEDULES for name in options}
ALONE = {*REFUSED, "global_batch", "microbatch_size", "expert_load"}
"""Options that evaluators refuse, or that say the same as another one."""
FACTORS: dict[str, Sequence[Any]] = {"schedule": SCHEDULES} | {
    name: (None, TYPED[name]) for name in OF_FILES if name not in OF_ONE_SCHEDULE | ALONE
}


@pytest.mark.slow
@pytest.mark.parametrize("row", pairwise(FACTORS))
def test_evaluators_agree_on_every_two_options(row: dict[str, Any]) -> None:
    given = {name: value for name, value in row.items() if value is not None}
    options = given.pop("schedule") | given
    found = stepsim.simulate(short(), "hgx-h100", **options).report.step_time_ps
    assert slopes(short(), **options) == found
    assert draws(short(), **options) == found


MODEL: dict[str, Any] = {"npus": 16, "global_batch": 16, "tp": 2, "sequence": 2048}
MODEL["microbatch_size"] = 1
BESIDE_OF_MODELS: dict[str, dict[str, Any]] = {
    "precision": {"cuda_graph": True},
    "attention": {"cuda_graph": True, "sequence": 8192},
    "expert_tp": {"expert_tp": 1},
    "recompute_layers": {"recompute": "full"},
    "layout": {"pp": 2},
    "shard_ranks": {"zero": 3},
    "reshard": {"zero": 3, "cuda_graph": True, "sequence": 256},
    "cp_comm": {"cp": 4, "cuda_graph": True},
    "packed": {"cuda_graph": True, "sequence": 8192},
    "dispatch": {"ep": 4, "cuda_graph": True},
    "expert_overlap": {"ep": 4, "cuda_graph": True},
    "shared_overlap": {"ep": 4, "cuda_graph": True},
    "delay_wgrad": {"ep": 4, "cuda_graph": True},
}
SILENT = {"recipe", "loss_chunks"}  # none is of such a model; memory alone
SPARSE = {"ep", "expert_tp", "dispatch", "expert_overlap", "shared_overlap", "delay_wgrad"}


@pytest.mark.parametrize("name", sorted(OF_MODELS - SILENT))
def test_what_only_a_model_can_be_asked_changes_its_step(
    name: str, model: Path, moe_model: Path, moe: Path
) -> None:
    with pytest.raises(PlanError, match=f"^{name}(: it)? is for models only"):
        stepsim.simulate(moe, "hgx-h100", **{name: TYPED[name]})
    path = moe_model if name in SPARSE else model
    plain = {**MODEL, **BESIDE_OF_MODELS.get(name, {})}
    changed = {**plain, name: TYPED[name]}
    found = step_ps(path, **changed)
    assert found != step_ps(path, **plain)
    assert slopes(path, **changed) == found
    assert draws(path, **changed) == found


def step_ps(path: Path, **options: Any) -> int:
    return stepsim.simulate(path, "hgx-h100", **options).report.step_time_ps


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.toml"
    path.write_text('based_on = "llama-3.2-1b"\nnum_hidden_layers = 6\n')
    return path


@pytest.fixture
def moe_model(tmp_path: Path) -> Path:
    path = tmp_path / "moe.toml"
    path.write_text('based_on = "qwen1.5-moe-a2.7b"\nnum_hidden_layers = 4\n')
    return path
