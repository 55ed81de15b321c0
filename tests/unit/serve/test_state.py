"""A page's question as a state: what it may name, and the lines that repeat it."""

import shlex
from typing import Any

import pytest

import stepsim
from stepsim.base.errors import PlanError
from stepsim.base.units import Quantity
from stepsim.cli import make_app
from stepsim.files.asked import read_options
from stepsim.serve.state import KNOBS, ExplorerState, Question

ASKED = {
    "workload": "a.txt",
    "topology": "hgx-h100",
    "schedule": "interleaved:4",
    "microbatches": "32",
    "compute_scale": "0.5",
    "fabric.bandwidth": "400 Gbps",
}


def test_states_that_differ_in_durations_share_a_structure() -> None:
    slower = ExplorerState.of({**ASKED, "fabric.bandwidth": "100 Gbps", "compute_scale": "2"})
    bare = ExplorerState.of(ASKED).bare()
    assert slower.bare() == bare
    other = ExplorerState.of({**ASKED, "microbatches": "64"})
    assert other.bare() != bare


def test_a_bare_state_keeps_the_structure_and_nothing_else() -> None:
    bare = ExplorerState.of(ASKED).bare()
    assert bare.bare() == bare
    assert dict(bare.options) == {"schedule": "interleaved:4", "microbatches": "32"}
    assert not bare.numbers


def test_the_command_has_every_option_and_number() -> None:
    words = shlex.split(ExplorerState.of(ASKED).command("my file.txt", "hgx-h100"))
    assert words[:5] == ["stepsim", "simulate", "my file.txt", "--topology", "hgx-h100"]
    given = dict(zip(words[5::2], words[6::2], strict=True))
    assert given == {
        "--schedule": "interleaved:4",
        "--microbatches": "32",
        "--compute-scale": "0.5",
        "--set": "fabric.bandwidth=400 Gbps",
    }


@pytest.mark.parametrize("text", ["on", "off"])
@pytest.mark.parametrize(
    "name",
    [n for n, option in KNOBS.items() if option.quantity is Quantity.SWITCH],
)
def test_the_command_says_switches_as_the_command_line_takes_them(name: str, text: str) -> None:
    state = ExplorerState.of({"workload": "-rf.txt", "topology": "-t.toml", name: text})
    words = shlex.split(state.command("-rf.txt", "-t.toml"))
    command: Any = make_app().get_command(None, "simulate")
    asked = command.make_context("simulate", words[2:]).params
    assert (words[2], asked["topology"]) == ("./-rf.txt", "./-t.toml")
    typed = {} if asked[name] is None else {name: asked[name]}
    assert read_options(typed)[0] == read_options({name: text})[0]


def test_a_value_that_begins_with_a_dash_is_no_option() -> None:
    command = ExplorerState.of({"microbatches": "-1; reboot"}).command("a.txt", "hgx-h100")
    assert shlex.split(command)[5:] == ["--microbatches=-1; reboot"]
    assert "'--microbatches=-1; reboot'" in command


def test_empty_texts_are_defaults() -> None:
    assert dict(ExplorerState.of({**ASKED, "schedule": "", "pp": ""}).options) == {
        "microbatches": "32",
        "compute_scale": "0.5",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "state is .*: expected a table"),
        ({str(i): "1" for i in range(99)}, "expected a table of length <= 64"),
        ({"schedule": 3}, "schedule is 3: expected a text"),
        ({"schedule": "x" * 1000}, "expected a text in quotes of length <= 200"),
        ({"schedule": "orders.csv"}, "a page reads no files"),
        ({"comm_table": "/etc/passwd"}, "unknown option 'comm_table'"),
        ({"device": "/etc/passwd"}, "device is '/etc/passwd': expected one of a100-40gb"),
        ({"noise.rank": "0.1"}, "unknown option 'noise.rank'"),
    ],
)
def test_what_is_no_question_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        ExplorerState.of(Question.of({"state": wrong}).state)


def test_no_knob_names_a_file() -> None:
    assert "schedule" in KNOBS
    assert not [name for name, option in KNOBS.items() if option.is_file]


def test_the_python_lines_give_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    state = ExplorerState.of({"microbatches": "4", "fabric.bandwidth": "100 Gbps"})
    lines = state.python("workloads/moe_128.txt", "hgx-h100")
    exec(compile(lines, "lines", "exec"), {})
    network = stepsim.load_topology("hgx-h100", numbers={"fabric.bandwidth": "100 Gbps"})
    step = stepsim.simulate("workloads/moe_128.txt", network, microbatches=4)
    assert int(capsys.readouterr().out) == step.report.step_time_ps
