"""What can be asked of a step is declared once; who takes it uses it or refuses it by name."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import asked

import stepsim
from stepsim.base.errors import PlanError, ScheduleError, StepsimError
from stepsim.base.option import Panel
from stepsim.base.quantities import Quantity
from stepsim.cli.common.options import NO_MEMORY, ON_COMMAND_LINE
from stepsim.cli.root import make_app
from stepsim.explore.noise.draws import NoiseModel
from stepsim.explore.sweep.axes import OPTION_AXES
from stepsim.files.step_table import MeasuredStepRow
from stepsim.options import OPTIONS, StepOptions
from stepsim.results.report import Report
from stepsim.workload.rows import Workload

CALLED = (each.callback for each in make_app().registered_commands)
COMMANDS = {command.__name__.removesuffix("_command"): command for command in CALLED if command}
TYPED: dict[str, Any] = {
    "npus": 128,
    "pp": 2,
    "tp": 4,
    "cp": 2,
    "ep": 4,
    "expert_tp": 2,
    "sequence": 8192,
    "precision": "fp8",
    "recompute": "full",
    "recompute_layers": 1,
    "layout": "4+2",
    "zero": 3,
    "shard_ranks": 4,
    "reshard": False,
    "sequence_parallel": False,
    "cp_comm": "all_to_all",
    "attention": "unfused",
    "dispatch": "deepep",
    "tp_comm_overlap": True,
    "cuda_graph": True,
    "device": "b200",
    "framework": "megatron-deepspeed",
    "microbatches": 8,
    "global_batch": 64,
    "microbatch_size": 2,
    "rank_order": "pp-tp-dp",
    "ep_layout": "folded",
    "schedule": "interleaved:2",
    "chunks": 4,
    "p2p": "eager",
    "warmup_flush": True,
    "deallocate_outputs": True,
    "group_size": 8,
    "memory_limit": 1,
    "stage_rows": "every",
    "tp_overlap": False,
    "dp_overlap": True,
    "dp_bucket": "400 MB",
    "contention": "fair",
    "algorithm": "all_reduce=double_binary_tree",
    "expert_load": [1, 2, 3, 4],
    "expert_skew": 1.5,
    "slow": "0-3:2",
    "compute_scale": 0.5,
    "fill_placeholders": True,
    "host_overhead": "250 us",
    "get_batch": "1 ms",
    "loss_time": "1 ms",
    "fused_factor": 0.8,
    "activation_size": "1 GiB",
    "fold_ranks": False,
    "engine": "levels",
}
"""A value of every option that people can give without a file."""
OF_MODELS = {name for name, option in OPTIONS.items() if option.panel is Panel.MODEL}
"""What only a model can be asked: a workload file has it in its numbers."""
OF_FILES = sorted(TYPED.keys() - OF_MODELS)
BESIDE: dict[str, dict[str, Any]] = {
    "group_size": {"schedule": "interleaved:2", "microbatches": 8},
    "chunks": {"schedule": "interleaved", "microbatches": 8},
    "p2p": {"microbatches": 8},
    "schedule": {"microbatches": 8},
    "warmup_flush": {"schedule": "interleaved:2", "microbatches": 8},
    "deallocate_outputs": {"schedule": "interleaved:2", "microbatches": 8},
    "memory_limit": {"schedule": "auto-zb", "microbatches": 16},
    "dp_bucket": {"dp_overlap": True},
    "fused_factor": {"schedule": "dualpipe-v", "microbatches": 8},
}
"""What an option needs to have an effect."""
UNCHANGED = {"contention", "engine", "fold_ranks", "npus"}
"""The same step time: by design, because the value is the file's, or on this network."""


def test_every_field_is_an_option_and_every_option_is_tried() -> None:
    assert {option.field for option in OPTIONS.values()} == {f.name for f in fields(StepOptions)}
    assert TYPED.keys() == OPTIONS.keys() - {"plan", "eager_transfers", "comm_table", "calibration"}


@pytest.mark.parametrize("command", ["simulate", "sensitivity", "noise", "sweep"])
def test_commands_take_every_option_that_does_something(command: str) -> None:
    taken = set(signature(COMMANDS[command]).parameters) & OPTIONS.keys()
    assert taken == (ON_COMMAND_LINE if command == "simulate" else NO_MEMORY)


def test_compare_leaves_out_what_it_compares() -> None:
    taken = set(signature(COMMANDS["compare"]).parameters) & OPTIONS.keys()
    assert taken == ON_COMMAND_LINE - {"schedule", "chunks"}


def test_tables_of_steps_and_axes_have_the_same_options() -> None:
    columns = set(MeasuredStepRow.__struct_fields__) & OPTIONS.keys()
    assert columns == ON_COMMAND_LINE - {"calibration", "comm_table", "expert_load"}
    assert OPTION_AXES.keys() < OPTIONS.keys()
    assert OPTIONS.keys() - OPTION_AXES.keys() == {
        *("plan", "calibration", "comm_table", "expert_load", "slow", "activation_size"),
        *("engine", "fold_ranks"),
    }


@cache
def short() -> Workload:
    """The first layers of every stage of moe_128: options mean the same to it."""
    whole = stepsim.load_workload(Path(__file__).parents[2] / "workloads" / "moe_128.txt")
    blocks = tuple(replace(each, layers=each.layers[:5]) for each in whole.microbatches)
    return replace(whole, microbatches=blocks, doubts=())


@cache
def simulated(beside: str, changed: str = "") -> Report:
    """A step of `short` with what an option needs, and perhaps with the option."""
    options = BESIDE.get(beside, {}) | ({changed: TYPED[changed]} if changed else {})
    return stepsim.simulate(short(), "hgx-h100", **options).report


@pytest.mark.parametrize("name", OF_FILES)
def test_an_option_changes_the_result_of_simulate(name: str) -> None:
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


Evaluator = Callable[..., object]


def slopes(job: Path | Workload, **options: Any) -> object:
    return stepsim.sensitivity(job, "hgx-h100", **options).step_time_ps


def draws(job: Path | Workload, **options: Any) -> object:
    found = stepsim.noise(job, "hgx-h100", model=NoiseModel(), samples=1, **options)
    return found.planned_ps


@pytest.mark.parametrize("evaluate", [slopes, draws])
@pytest.mark.parametrize("name", OF_FILES)
def test_evaluators_use_an_option_or_refuse_it_by_name(
    name: str, evaluate: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a draw per class of ranks: what is planned is the same, and done sooner
    monkeypatch.setattr("stepsim.explore.noise.draws._MOST_TASKS", 0)
    options = {**BESIDE.get(name, {}), name: TYPED[name]}
    if name in ("activation_size", "contention"):
        with pytest.raises(PlanError, match=name):
            evaluate(short(), **options)
    else:
        assert evaluate(short(), **options) == simulated(name, name).step_time_ps


MODEL: dict[str, Any] = {"npus": 16, "global_batch": 16, "tp": 2, "sequence": 2048}
BESIDE_OF_MODELS: dict[str, dict[str, Any]] = {
    "attention": {"cuda_graph": True, "sequence": 8192},
    "expert_tp": {"expert_tp": 1},
    "recompute_layers": {"recompute": "full"},
    "layout": {"pp": 2},
    "shard_ranks": {"zero": 3},
    "reshard": {"zero": 3, "cuda_graph": True, "sequence": 256},
    "cp_comm": {"cp": 4},
    "dispatch": {"ep": 4},
}
SPARSE = {"ep", "expert_tp", "dispatch"}


@pytest.mark.parametrize("name", sorted(OF_MODELS))
def test_what_only_a_model_can_be_asked_changes_its_step(
    name: str, model: Path, moe_model: Path, moe: Path
) -> None:
    with pytest.raises(PlanError, match=f"^{name}: only a model can be asked that"):
        stepsim.simulate(moe, "hgx-h100", **{name: TYPED[name]})
    path = moe_model if name in SPARSE else model
    plain = {**MODEL, **BESIDE_OF_MODELS.get(name, {})}
    changed = {**plain, name: TYPED[name]}
    found = step_ps(path, **changed)
    assert found != step_ps(path, **plain)
    assert slopes(path, **changed) == draws(path, **changed) == found


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
    path.write_text('based_on = "qwen3-30b-a3b"\nnum_hidden_layers = 4\n')
    return path


@pytest.mark.parametrize(
    ("name", "beside", "why"),
    [
        ("warmup_flush", {}, "only interleaved schedules"),
        ("deallocate_outputs", {"schedule": "zb-h1"}, "only interleaved schedules"),
        ("dp_bucket", {}, "gradients are not overlapped"),
        ("fused_factor", {}, "1f1b has no fused pairs"),
    ],
)
def test_an_idle_option_is_named(name: str, beside: dict[str, Any], why: str, moe: Path) -> None:
    report = stepsim.simulate(moe, "hgx-h100", **beside, **{name: TYPED[name]}).report
    (warning,) = (text for text in report.warnings if "no effect" in text)
    assert warning.startswith(f"{name} ")
    assert why in warning


@pytest.mark.parametrize("name", ["group_size", "memory_limit"])
def test_options_of_other_schedules_are_refused(name: str, moe: Path) -> None:
    with pytest.raises(ScheduleError, match=f"option {name}"):
        stepsim.simulate(moe, "hgx-h100", **{name: TYPED[name]})


@pytest.mark.parametrize("name", sorted(TYPED))
@pytest.mark.parametrize("value", [object(), b"1", {"a": 1}, "", "\n", float("nan"), -1, "inf"])
def test_values_that_mean_nothing_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(StepsimError) as caught:
        asked(**{name: value})
    assert name.replace("_", " ") in str(caught.value).replace("_", " ")


def test_unknown_options_are_refused() -> None:
    with pytest.raises(PlanError, match="unknown option 'npu': expected one of npus, pp"):
        asked(npu=8)


@given(st.integers(0, 2**63 - 1), st.sampled_from([Quantity.TIME, Quantity.SIZE]))
def test_what_is_written_reads_back_exactly(value: int, quantity: Quantity) -> None:
    assert quantity.parse(quantity.text(value)) == value


def test_auto_zb_is_searched_with_the_prices_it_runs_with(moe: Path) -> None:
    """The order found for slow ranks is another one than without."""
    cases: list[dict[str, Any]] = [{}, {"slow": "0-31:3"}, {"algorithm": "tree"}]
    orders = [
        stepsim.simulate(
            moe, "hgx-h100", schedule="auto-zb", microbatches=8, memory_limit=1, **options
        ).timeline.graph.schedule.orders
        for options in cases
    ]
    assert orders[0] != orders[1]
    assert len({*orders}) > 1


@pytest.mark.parametrize("name", [name for name, each in OPTIONS.items() if "{names}" in each.help])
def test_a_help_that_speaks_of_names_says_them_all(name: str) -> None:
    option = OPTIONS[name]
    names = option.choices or option.offers
    assert names is not None
    assert ", ".join(names()) in option.about
