"""Values of options: how they are read, and what a command needs to import for it."""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from helpers import Run

from stepsim.cli.declared import Says, argument, flag
from stepsim.cli.options import takes


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


SEEN: dict[str, Any] = {}


@takes()
def command(
    file: Annotated[Path, argument("FILE", "A file.")],
    name: Annotated[str | None, Says("A text.")] = None,
    count: int | None = flag("A number.", "--count", "-n"),
    port: int = flag("A number with a default.", default=5),
    rate: float = flag("A number with a fraction.", default=1.0),
    colour: Colour = flag("A choice.", default=Colour.RED),
    sets: tuple[str, ...] = flag("Texts.", "--set"),
    paths: tuple[Path, ...] = flag("Files.", "--path"),
    quiet: bool = flag("A switch.", default=False),
    show: bool = flag("A switch that is on.", "--show/--no-show", default=True),
) -> None:
    """Remember what was typed."""
    SEEN.update(locals())


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("", {}),
        ("--name x -n 12 --port 3", {"name": "x", "count": 12, "port": 3}),
        ("--rate 0.5 --colour blue", {"rate": 0.5, "colour": Colour.BLUE}),
        ("--quiet --no-show", {"quiet": True, "show": False}),
        ("--set a=1 --set b=2 --path y/z", {"sets": ("a=1", "b=2"), "paths": (Path("y/z"),)}),
        ("--count -3", {"count": -3}),
        ("--count 4k", {"count": 4096}),
        ("--count 4.0", {"count": 4}),
    ],
)
def test_values_are_read_by_their_types(words: str, changed: dict[str, object]) -> None:
    usual: dict[str, object] = {
        "name": None,
        "count": None,
        "port": 5,
        "rate": 1.0,
        "colour": Colour.RED,
    }
    usual |= {"sets": (), "paths": (), "quiet": False, "show": True, "file": Path("a.txt")}
    assert CliRunner().invoke(command, ["a.txt", *words.split()]).exit_code == 0
    assert usual | changed == SEEN
    assert isinstance(SEEN["colour"], Colour)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a.txt --count 0x10", "'--count' / '-n': '0x10' is not a whole number"),
        ("a.txt --count 4M", "samples, not tokens"),
        ("a.txt --count x", "'x' is not a whole number"),
        ("a.txt --rate x", "'--rate': 'x' is not a valid float"),
        ("a.txt --colour green", "'green' is not one of 'red', 'blue'"),
        ("a.txt --no-such", "No such option"),
        ("--name x", "Missing argument 'FILE'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(words: str, said: str) -> None:
    found = CliRunner().invoke(command, words.split())
    assert found.exit_code == 2
    assert said in found.output


def test_a_required_option_needs_a_value(run: Run) -> None:
    said = "error: Option '-o' requires an argument (stepsim report --help says what it takes)\n"
    assert run("report", "a.json", "-o") == (2, "", said)


def loaded(*words: str) -> set[str]:
    """Modules that a command has imported when it ends."""
    code = (
        "import sys\nfrom stepsim.cli import main\n"
        f"sys.argv = ['stepsim', *{words}]\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_step_needs_no_more_than_it_uses(workloads: Path) -> None:
    found = loaded("simulate", str(workloads / "gpt_tp4.txt"), "-q")
    assert "stepsim.core.events" in found
    idle = {"tqdm", "asyncio", "networkx", "matplotlib", "tornado", "sqlite3"}
    idle |= {"json", "tomli_w", "shlex", "hashlib", "logging", "numpy.ma"}
    assert not found & idle
    assert not {"stepsim.serve", "stepsim.explore", "stepsim.runs", "stepsim.measured"} & found
    studies = ("explain.as_profile", "explain.diff", "explain.improve", "explain.stragglers")
    elsewhere = ("network.contention", "network.measured_times", "explain.memory")
    of_models = ("workload.model.architecture", "workload.model.device", "step.model_plan")
    of_files = ("files.accelerators", "files.schedule_csv", "network.topology.listed")
    assert not {f"stepsim.{each}" for each in (*studies, *elsewhere, *of_models, *of_files)} & found


def test_levels_need_no_events(workloads: Path) -> None:
    found = loaded("simulate", str(workloads / "gpt_tp4.txt"), "-q", "--engine", "levels")
    assert "stepsim.core.ends" in found
    assert not {"simpy", "stepsim.core.events", "stepsim.network.flights"} & found


def test_a_count_within_its_limits_needs_no_other_reader() -> None:
    found = loaded("plan", "llama-3.2-1b", "--gpus", "8", "--runs", "1", "--top", "1", "-q")
    assert not {"simpy", "networkx"} & found


def test_a_difference_needs_no_engine(workloads: Path, tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    loaded("simulate", str(workloads / "gpt_tp4.txt"), "-q", "--json", str(step))
    found = loaded("diff", str(step), str(step))
    assert not {"simpy", "stepsim.core.events", "networkx"} & found
