"""What can be asked of a step is declared once, and what cannot is refused by name."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jobs import asked
from option_values import TYPED

import stepsim
from stepsim.base.errors import PlanError, ScheduleError, StepsimError
from stepsim.base.units import Quantity
from stepsim.cli.options import NO_MEMORY, ON_COMMAND_LINE
from stepsim.cli.root import make_app
from stepsim.files.axes import OPTION_AXES
from stepsim.files.step_table import MeasuredStepRow
from stepsim.options import OPTIONS, StepOptions


def taken_by(name: str) -> set[str]:
    """Options of a step that a command takes."""
    command = make_app().get_command(None, name)
    assert command is not None
    return {str(each.name) for each in command.params} & OPTIONS.keys()


def test_every_field_is_an_option_and_every_option_is_tried() -> None:
    assert {option.field for option in OPTIONS.values()} == {f.name for f in fields(StepOptions)}
    assert TYPED.keys() == OPTIONS.keys() - {"comm_table", "calibration"}


@pytest.mark.parametrize("command", ["simulate", "noise", "sweep"])
def test_commands_take_every_option_that_does_something(command: str) -> None:
    taken = taken_by(command)
    assert taken == (ON_COMMAND_LINE if command == "simulate" else NO_MEMORY)


def test_compare_leaves_out_what_it_compares() -> None:
    taken = taken_by("compare")
    assert taken == ON_COMMAND_LINE - {"schedule", "chunks"}


def test_tables_of_steps_and_axes_have_the_same_options() -> None:
    columns = set(MeasuredStepRow.__struct_fields__) & OPTIONS.keys()
    assert columns == ON_COMMAND_LINE - {"calibration", "comm_table"}
    assert OPTION_AXES.keys() < OPTIONS.keys()
    assert OPTIONS.keys() - OPTION_AXES.keys() == {
        *("calibration", "comm_table", "slow", "activation_size", "engine"),
    }


@pytest.mark.parametrize(
    ("name", "beside", "why"),
    [
        ("warmup_flush", {}, "only interleaved schedules"),
        ("deallocate_outputs", {"schedule": "zb-h1"}, "only interleaved schedules"),
        ("dp_bucket", {}, "gradients are not overlapped"),
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


@pytest.mark.parametrize("value", [object(), b"1", {"a": 1}, "", "\n", float("nan"), -1, "inf"])
def test_values_that_mean_nothing_are_refused_by_name(value: object) -> None:
    for name in TYPED:
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
    assert option.names
    assert ", ".join(option.names) in option.about


def test_options_are_words_of_a_command_line() -> None:
    cases = (
        ("tp", "8", False, ["--tp", "8"]),
        ("microbatch_size", "2", False, ["--microbatch-size", "2"]),
        ("microbatch_size", "2", True, ["--mbs", "2"]),
        ("dp_overlap", "on", False, ["--dp-overlap"]),
        ("dp_overlap", "off", False, ["--no-dp-overlap"]),
        ("layout", "-x", False, ["--layout=-x"]),
    )
    for name, text, short, words in cases:
        assert OPTIONS[name].words(text, short=short) == words
