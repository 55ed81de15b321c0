"""Checks of an installation: what `stepsim doctor` runs.

Every check does a small piece of real work; none looks only at names. A check that raises is a
failed check, so that one broken part does not hide the others.
"""

import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Document, Entry
from stepsim.files.writing import FIGURE_SUFFIXES
from stepsim.show.tables.model import LONG, TEXT, Table, table_of

_DISTRIBUTION = "stepsim"
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")
_STAGES, _MICROBATCHES, _FORWARD_NS, _BACKWARD_NS = 4, 5, 2_000, 4_000


class Status(StrEnum):
    """How a check ended. Only `failed` makes the installation unusable."""

    OK = "ok"
    ABSENT = "absent"
    FAILED = "failed"


class Check(Entry, frozen=True, kw_only=True):
    """A check of an installation; `detail` says what was seen, or what to do."""

    name: str
    status: Status
    detail: str


class Diagnosis(Document, frozen=True, kw_only=True):
    """`stepsim doctor --json`: whether this installation works."""

    checks: tuple[Check, ...]


def diagnose() -> Iterator[Check]:
    """Run every check, in the order in which they depend on each other."""
    yield _run("python", _python)
    yield from _packages()
    for name, work in (
        ("topologies", _topologies),
        ("simulation", _simulation),
        ("figures", _figures),
        ("results", _results),
        ("workers", _workers),
        ("terminal", _terminal),
    ):
        yield _run(name, work)


def _run(name: str, work: Callable[[], str]) -> Check:
    try:
        return Check(name=name, status=Status.OK, detail=work())
    except Exception as error:  # a broken library may raise anything
        kind = "" if isinstance(error, StepsimError) else f"{type(error).__name__}: "
        return Check(name=name, status=Status.FAILED, detail=f"{kind}{error}")


def _python() -> str:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{found}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"


def _packages() -> Iterator[Check]:
    """One check per package that the installed distribution asks for."""
    from packaging.requirements import Requirement

    for text in metadata.requires(_DISTRIBUTION) or ():
        wanted = Requirement(text)
        extra = found[1] if (found := _EXTRA.search(text)) else ""
        if extra == "dev" or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            status = Status.ABSENT if extra else Status.FAILED
            detail = f"pip install 'stepsim[{extra}]' adds it" if extra else f"expected {text}"
            yield Check(name=wanted.name, status=status, detail=detail)
            continue
        fits = wanted.specifier.contains(version, prereleases=True)
        yield Check(
            name=wanted.name,
            status=Status.OK if fits else Status.FAILED,
            detail=version if fits else f"{version}: expected {wanted.specifier}",
        )


def _topologies() -> str:
    from stepsim.files.load import topology_of
    from stepsim.files.reading import topology_names

    names = topology_names()
    for name in names:
        topology_of(name)
    if not names:
        raise StepsimError("no topology came with the package: install it again")
    return f"{len(names)} shipped files read"


def _simulation() -> str:
    """A uniform pipeline on free links takes (m + P - 1)(f + b)."""
    from stepsim.files.load import topology_of, workload_of
    from stepsim.options import StepOptions
    from stepsim.step.simulate import simulate_step

    expected = (_MICROBATCHES + _STAGES - 1) * (_FORWARD_NS + _BACKWARD_NS) * 1_000
    half = _BACKWARD_NS // 2
    lines = (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: {_STAGES} vpp: 1 "
        f"ga: {_MICROBATCHES} all_gpus: {_STAGES} checkpoints: 0 checkpoint_initiates: 0 "
        "pp_comm: 8",
        "1",
        f"layer\t-1\t{_FORWARD_NS}\tNONE\t0\t{half}\tNONE\t0\t{half}\tNONE\t0\t0",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "uniform.txt"
        file.write_text("\n".join(lines) + "\n")
        options = StepOptions(microbatches=_MICROBATCHES)
        step = simulate_step(workload_of(file), topology_of("ideal"), options)
    found = step.report.step_time_ps
    if found != expected:
        raise StepsimError(f"a step of {expected} ps came out as {found} ps")
    return f"{_STAGES} stages, {_MICROBATCHES} microbatches: the closed form to the picosecond"


def _figures() -> str:
    from matplotlib import __version__ as version

    from stepsim.show.figures.drawing import make_figure

    with tempfile.TemporaryDirectory() as folder:
        for suffix in FIGURE_SUFFIXES:
            make_figure(lambda style: style.figure(1.0), Path(folder) / f"figure{suffix}")
    return f"{', '.join(FIGURE_SUFFIXES)} written with matplotlib {version}"


def _results() -> str:
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(Path(folder) / "results.sqlite")
        try:
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("CREATE TABLE result (step_time_ps INTEGER)")
            base.execute("INSERT INTO result VALUES (1)")
            base.commit()
        finally:
            base.close()
        free = shutil.disk_usage(folder).free / 1e9
    return f"SQLite {sqlite3.sqlite_version}, {free:.0f} GB free for temporary files"


def _workers() -> str:
    from stepsim.explore.sweep.processes import Processes

    with Processes(2, {}) as workers:
        found = list(workers.map(pow, [2] * 4, range(4)))
    if found != [1, 2, 4, 8]:
        raise StepsimError("worker processes gave wrong results")
    return "two worker processes for sweeps started"


def _terminal() -> str:
    colour = "no colour (NO_COLOR)" if os.environ.get("NO_COLOR") else "colour on a terminal"
    width = shutil.get_terminal_size().columns
    return f"{width} columns, {sys.stdout.encoding}, {colour}"


def checks_table(checks: Sequence[Check]) -> Table:
    """A row per check."""
    columns = {
        "status": TEXT.of("status"),
        "check": TEXT.of("name"),
        "what was found": LONG.of("detail"),
    }
    return table_of("checks of this installation", checks, columns)
