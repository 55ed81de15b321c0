"""Plain values are read as typer reads them, and without the library that it reads them with."""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.core
from typer.testing import CliRunner

from stepsim.cli.root import LightCommand


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


SEEN: list[tuple[Any, ...]] = []


def command(
    file: Annotated[Path, typer.Argument(readable=False)],
    name: Annotated[str | None, typer.Option("--name")] = None,
    count: Annotated[int | None, typer.Option("--count")] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=9)] = 5,
    rate: Annotated[float, typer.Option("--rate")] = 1.0,
    colour: Annotated[Colour, typer.Option("--colour")] = Colour.RED,
    sets: Annotated[list[str] | None, typer.Option("--set")] = None,
    paths: Annotated[list[Path] | None, typer.Option("--path", readable=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
    show: Annotated[bool, typer.Option("--show/--no-show")] = True,
) -> None:
    """Remember what was typed."""
    SEEN.append((file, name, count, port, rate, colour, sets, paths, quiet, show))


WORDS = (
    "a.txt",
    "a.txt --name x --count 12 --port 3 --rate 0.5 --colour blue --quiet --no-show",
    "a.txt --set a=1 --set b=2 --path x --path y/z",
    "a.txt --count -3",
    "a.txt --count 0x10",
    "a.txt --count 99999999999999999999",
    "a.txt --count x",
    "a.txt --port 10",
    "a.txt --rate x",
    "a.txt --colour green",
    "a.txt --no-such",
    "--name x",
)


@pytest.mark.parametrize("words", WORDS)
def test_values_are_read_as_typer_reads_them(words: str) -> None:
    told = []
    for kind in (typer.core.TyperCommand, LightCommand):
        app = typer.Typer()
        app.command(cls=kind)(command)
        SEEN.clear()
        result = CliRunner().invoke(app, words.split())
        told.append((result.exit_code, result.output, [*SEEN]))
    assert told[0] == told[1]
    assert bool(told[0][2]) == (told[0][0] == 0)


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
    idle = {"pydantic", "asyncio", "networkx", "matplotlib", "tornado", "sqlite3"}
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
    assert not {"pydantic", "simpy", "networkx"} & found


def test_a_difference_needs_no_engine(workloads: Path, tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    loaded("simulate", str(workloads / "gpt_tp4.txt"), "-q", "--json", str(step))
    found = loaded("diff", str(step), str(step))
    assert not {"simpy", "stepsim.core.events", "pydantic", "networkx"} & found
