"""What commands share: where results may go, warnings, and showing a result."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.base.errors import OutputError, one_line

if TYPE_CHECKING:
    from stepsim.show.tables.model import Shown

STDOUT = "-"

WorkloadArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Workload, e.g. a text of SimAI, AICB or ASTRA-sim.")
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON; - is stdout.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No warnings.")]


def check_outputs(
    inputs: Sequence[Path],
    *,
    json: str | None = None,
    figures: Iterable[Path | None] = (),
    files: Iterable[Path | None] = (),
    page: Path | None = None,
) -> None:
    """Refuse outputs that cannot be written before the work, not after it; raises OutputError."""
    from stepsim.files.writing import (
        check_figure_path,
        check_page_path,
        check_separate,
        check_writable,
    )

    drawn = [path for path in figures if path]
    written = [*drawn, *(path for path in (*files, page) if path)]
    if json and json != STDOUT:
        written.append(Path(json))
    for path in written:
        if str(path) == STDOUT:
            raise OutputError("only --json can be written to stdout: name a file")
        check_writable(path)
    check_separate(inputs, written)
    for path in drawn:
        check_figure_path(path)
    if page:
        check_page_path(page)


def command_line() -> str:
    """The command as it was typed, for results that say how they were made."""
    return shlex.join(["stepsim", *sys.argv[1:]])


def warn(warnings: Iterable[str], *, quiet: bool = False) -> None:
    """Print warnings on stderr unless asked to be quiet."""
    for warning in () if quiet else warnings:
        typer.echo(f"warning: {one_line(warning)}", err=True)


@contextmanager
def log_shown(*, enabled: bool) -> Iterator[None]:
    """Print the package's log on stderr, each line with the time since the start."""
    import logging

    if not enabled:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(relativeCreated)7.0f ms  %(message)s"))
    log = logging.getLogger("stepsim")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)


def show(json: str | None, document: Callable[[], bytes], shown: "Iterable[Shown]") -> None:
    """Write a result as JSON where that is asked for; print its tables unless that is stdout."""
    from stepsim.files.writing import write_whole

    if json == STDOUT:
        typer.echo(document().decode(), nl=False)
        return
    if json:
        write_whole(Path(json), document())
    show_tables(shown)


def show_tables(shown: "Iterable[Shown]") -> None:
    """Print tables on stdout; names from files as they are, what is not printable escaped."""
    from stepsim.show.terminal.printer import PlainConsole, print_shown

    print_shown(PlainConsole(), shown)
