"""Only `core.ends` and the SimPy engine know when a task starts: whoever computes asks them."""

import importlib
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run
from jobs import asked

import stepsim
from stepsim.core.ends import ends
from stepsim.core.events import run as run_events
from stepsim.core.flat import flatten
from stepsim.explore.batch.evaluation import make_batch
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, workload_of
from stepsim.network.fold import every_rank
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.state import ExplorerState
from stepsim.step.prepared import prepare

PACKAGE = Path(stepsim.__file__).parent
JOB = ("-t", "hgx-h100", "--npus", "16", "--pp", "4", "-m", "4", "-q")
BATCH = ("-t", "hgx-h100", "--gpus", "8", "--global-batch", "16", "--seq", "2048", "--steps", "8")
Replace = Callable[[Any], None]
Command = tuple[str, ...]


class AskedError(Exception):
    """Somebody has asked when something ends."""


def refuse(*_: object, **__: object) -> None:
    raise AskedError


def longer_by(time_ps: int) -> Callable[..., Any]:
    """As `ends`, where every node takes so much more."""

    def slowed(waits: Any, duration_ps: Any, **options: Any) -> Any:
        if isinstance(duration_ps, np.ndarray):
            return ends(waits, duration_ps + time_ps, **options)
        return ends(waits, (duration + time_ps for duration in duration_ps), **options)

    return slowed


def plainly(waits: Any, duration_ps: Any, *, out: Any = None) -> Any:
    """As `ends`, node by node: each starts after the last that it waits for."""
    end: list[Any] = []
    views = waits.views or [()] * len(waits)
    for before, seen, own in zip(waits.after.tolist(), views, duration_ps, strict=True):
        ready = [end[node] for node in before]
        if seen:
            ready = [see(each) if see else each for see, each in zip(seen, ready, strict=True)]
        end.append(reduce(np.maximum, ready) + own if ready else own)
    if not isinstance(duration_ps, np.ndarray):
        return end if waits.results is None else [end[node] for node in waits.results]
    found = np.empty_like(duration_ps) if out is None else out
    found[:] = end
    return found


@pytest.fixture
def replace_ends(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Puts another function in the place of `ends`, wherever it is imported."""
    users = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "from stepsim.core.ends import" in path.read_text():
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            module = importlib.import_module(name)
            users += [module] if hasattr(module, "ends") else []
    assert len(users) > 4

    def replaced(other: Any) -> None:
        for module in users:
            monkeypatch.setattr(module, "ends", other)

    return replaced


@pytest.fixture
def commands(workloads: Path, tmp_path: Path, run: Run) -> dict[str, Command]:
    """Commands that compute when something ends, by name; a profile is made for some."""
    text, profile = str(workloads / "gpt_tp4.txt"), str(tmp_path / "profile")
    assert run("simulate", text, *JOB, "--kineto", profile)[0] == 0
    sweep = ("--set", "nvlink.bandwidth=100..200 GB/s:3", "--db", str(tmp_path / "sweep.db"))
    plan = ("--npus", "8", "--global-batch", "16", "--top", "1", "-q")
    return {
        "simulate": ("simulate", text, *JOB, "--engine", "levels"),
        "sweep": ("sweep", text, *JOB, *sweep, "--force"),
        "noise": ("noise", text, *JOB, "--samples", "4", "--task", "0.1"),
        "sensitivity": ("simulate", text, *JOB, "--sensitivity"),
        "batches": (
            "simulate",
            "llama-3.2-1b",
            *BATCH,
            "--lengths",
            "uniform(least=16, most=2048)",
            "-q",
        ),
        "plan": ("plan", "llama-3.2-1b", "-t", "hgx-h100", *plan),
        "improve": ("improve", profile, "-q"),
        "stragglers": ("simulate", profile, "-q"),
        "what-if": ("what-if", str(workloads / "measured" / "megatron_moe_rank0.txt"), "-q"),
    }


def explored(workloads: Path) -> dict[str, object]:
    library = NamedNouns()
    library.open(workloads / "gpt_tp4.txt")
    asked_for = {"workload": "gpt_tp4.txt", "topology": "hgx-h100", "fabric.latency": "3 us"}
    return Explorer(library=library).live(ExplorerState.of(asked_for))


def test_whoever_computes_asks(
    commands: dict[str, Command], workloads: Path, replace_ends: Replace, run: Run
) -> None:
    replace_ends(refuse)
    for name, words in commands.items():
        with pytest.raises(AskedError):
            pytest.fail(f"{name} said {run(*words)} and did not ask")
    with pytest.raises(AskedError):
        explored(workloads)


def test_events_ask_nobody_where_nothing_is_contracted(
    workloads: Path, replace_ends: Replace
) -> None:
    options = asked(npus=16, pp=4, microbatches=4)
    work, network = workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100")
    ready = prepare(StepInputs(work, network, options))
    actors = every_rank(ready.prices)
    replace_ends(refuse)
    flat = flatten(ready.graph, actors, ready.prices, contract=False)
    _, end = run_events(flat.waits, flat.duration_ps, {})
    assert end.max() > 0
    with pytest.raises(AskedError):
        flatten(ready.graph, actors, ready.prices)


def test_every_answer_follows(
    commands: dict[str, Command], workloads: Path, replace_ends: Replace, run: Run
) -> None:
    """A millisecond more for every node changes what each command prints.

    `simulate` refuses such times: tasks that take longer than they say leave gaps in its path.
    """
    before = {name: run(*words) for name, words in commands.items()}
    first = explored(workloads)
    replace_ends(longer_by(10**9))
    for name, words in commands.items():
        code, printed, said = run(*words)
        assert before[name][0] == 0, before[name]
        assert printed != before[name][1], name
        assert code == 0 or "critical path: nothing ends" in said, said
    assert explored(workloads) != first


def test_a_plain_loop_in_its_place_gives_equal_answers(
    commands: dict[str, Command], workloads: Path, replace_ends: Replace, run: Run
) -> None:
    before = {name: run(*words) for name, words in commands.items()}
    first = explored(workloads)
    replace_ends(plainly)
    assert {name: run(*words) for name, words in commands.items()} == before
    assert explored(workloads) == first


def test_all_change_alike(workloads: Path, replace_ends: Replace) -> None:
    """A picosecond more for every node: by as much for columns, batches, plans and explorer."""
    options = asked(npus=16, pp=4, microbatches=4, engine="levels")
    work, network = workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100")
    job = StepInputs(work, network, options)

    def steps_ps() -> set[int]:
        library = NamedNouns()
        library.open(workloads / "gpt_tp4.txt")
        texts = {"npus": "16", "pp": "4", "microbatches": "4"}
        state = ExplorerState.of({"workload": "gpt_tp4.txt", "topology": "hgx-h100", **texts})
        batch = make_batch(job)
        shown: Any = Explorer(library=library).live(state)
        return {
            prepare(job, quick=True).step_time_ps(),
            int(batch.evaluate({}).step_time_ps[0]),
            shown["step_ps"],
        }

    (before,) = steps_ps()
    replace_ends(longer_by(1))
    (after,) = steps_ps()
    assert 0 < after - before < 10**6
