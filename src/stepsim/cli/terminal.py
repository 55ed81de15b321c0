"""What commands share: where results may go, warnings, and showing a result."""

import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import environ
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import click

from stepsim.base.errors import OutputError, one_line
from stepsim.cli.declared import Says, argument, flag

if TYPE_CHECKING:
    from stepsim.base.structs import Document
    from stepsim.documents.table import Answer, Sheet
    from stepsim.explain.report import Report
    from stepsim.show.frames import Columns
    from stepsim.step.prepared import SimulatedStep

_STDOUT = "-"


class Stopped(BaseException):
    """A signal asked the command to end; it does so in one line, with the shell's exit code."""

    def __init__(self, number: int, also: str = "") -> None:
        super().__init__(number, also)
        self.code = 128 + number
        word = "terminated" if number == signal.SIGTERM else "interrupted"
        self.text = f"{word}: {also}" if also else word


FILE = "stepsim.base.writing:check_writable"
FOLDER = "stepsim.base.writing:check_new_folder"
PAGE = "stepsim.base.writing:check_page_path"
_FIGURE = "stepsim.base.writing:check_figure_path"
"""What checks an output before the work."""

WorkloadArgument = Annotated[
    Path,
    argument("FILE", "Model by name or file, a workload (SimAI, AICB, ASTRA-sim), a measured run."),
]
JsonOption = Annotated[str | None, Says("Write the result as JSON; - is stdout.", writes=FILE)]
CsvOption = Annotated[
    Path | None,
    Says("Write the rows of the result as CSV, in ps and bytes.", writes=FILE),
]
FullOption = Annotated[
    bool,
    Says("Print every table, and all that was assumed.", ("--full",)),
]


def figure(what: str) -> Any:
    """An option that names a figure to write."""
    return flag(f"{what}: .png, .svg or .pdf.", writes=_FIGURE)


def check_outputs(values: Mapping[str, Any]) -> None:
    """Refuse outputs of a command that cannot be written before the work; raises OutputError.

    `values` are its options and arguments by name; paths that are not written are its inputs.
    """
    inputs, outputs = list[Path](), list[Path]()
    command: Any = click.get_current_context().command
    for name, says in command.says.items():
        value = values.get(name)
        for each in value if isinstance(value, tuple) else [value]:
            if not says.writes:
                inputs += [each] if isinstance(each, Path) else []
            elif each and each != _STDOUT:
                outputs.append(Path(each))
                if str(outputs[-1]) == _STDOUT:
                    raise OutputError("only --json can be written to stdout: name a file")
                resolve_name(says.writes)(outputs[-1])
    if outputs:
        from stepsim.base.writing import check_separate

        check_separate(inputs, outputs)


def command_line() -> str:
    """The command as it was typed, for results that say how they were made."""
    import shlex

    return shlex.join(["stepsim", *sys.argv[1:]])


def _labelled(text: str) -> str:
    """A note for stderr: what was assumed, or a warning of what may be wrong."""
    label = "assumed" if re.search(r"\bassume[sd]\b|: guessed |^defaults of", text) else "warning"
    return f"{label}: {one_line(text)}"


def is_quiet() -> bool:
    """Whether the command that runs was asked to print no warnings and no progress."""
    context = click.get_current_context(silent=True)
    return bool(context and context.params.get("quiet"))


def warn(warnings: Iterable[str]) -> None:
    """Print warnings on stderr unless asked to be quiet."""
    for warning in () if is_quiet() else warnings:
        click.echo(_labelled(warning), err=True)


def warn_of(
    reports: "Iterable[Report]",
    verbose: bool,
    most: int | None = None,
) -> None:
    """Print once what reports say of their input, at most so many lines.

    What is weighty in the first report stands before how its file was read and what was assumed,
    and that before what changes little. How many more there are is said. Notes about what is as it
    should be are for those who ask for everything.
    """
    if is_quiet():
        return
    # the answer stands before what was assumed, also where both go into one file
    sys.stdout.flush()
    every = list(reports)
    findings = [each for report in every[:1] for each in report.findings]
    weighty = [each.text for each in findings if each.is_weighty]
    assumed = [report.reading for report in every[:1] if report.reading]
    assumed += [text for report in every for text in report.warnings]
    said = list(dict.fromkeys([*weighty, *assumed, *(each.text for each in findings)]))
    for text in said[:most]:
        line = _labelled(text)
        coloured = text in weighty and not environ.get("NO_COLOR")
        click.echo(click.style(line, fg="red") if coloured else line, err=True)
    if left := len(said[most:]) if most is not None else 0:
        click.echo(f"{left} more with --full", err=True)
    for note in dict.fromkeys(text for report in every for text in report.notes if verbose):
        click.echo(f"note: {one_line(note)}", err=True)


@contextmanager
def log_shown() -> Iterator[None]:
    """Print the package's log on stderr, each line with the time since the start."""
    import logging

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


def show(
    json: str | None,
    document: Callable[[], bytes],
    shown: "Sheet",
    csv: Path | None = None,
    answer: "Answer | None" = None,
) -> None:
    """Write a result as JSON or CSV where asked for; print its tables unless JSON is stdout.

    An answer stands before the tables.
    """
    if csv:
        from stepsim.base.writing import write_whole
        from stepsim.show.frames import csv_text, first_table

        shown = list(shown)
        write_whole(csv, csv_text(first_table(shown)).encode())
    if json == _STDOUT:
        click.echo(document().decode(), nl=False)
        return
    if json:
        from stepsim.base.writing import write_whole

        write_whole(Path(json), document())
    from stepsim.show.terminal import Paper, print_answer, print_shown

    console = Paper()
    if answer:
        print_answer(console, answer)
    print_shown(console, shown, answer.time if answer else None)


def command_bar(text: str = "simulating") -> "AbstractContextManager[Callable[..., None] | None]":
    """A bar on stderr unless asked to be quiet, as `stepsim.show.terminal` has it."""
    from stepsim.show import terminal

    return terminal.progress_bar(text, enabled=not is_quiet())


@contextmanager
def sweep_bar() -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar that is called with scenarios done, failed, and all; None where nobody watches."""
    with command_bar("sweeping") as bar:
        yield bar and (
            lambda done, failed, total: bar(done, total, f"{failed} failed" * bool(failed))
        )


def step_json(step: "SimulatedStep") -> bytes:
    """A step as its JSON, with its timeline."""
    from stepsim.views.lanes import stored

    return stored(step).to_json()


def write_rows(path: Path | None, document: "Document", rows: "Columns | None" = None) -> None:
    """Write some rows, or the first table of a result, as CSV where that is asked for.

    Raises OutputError.
    """
    if path:
        from stepsim.base.writing import write_whole
        from stepsim.show.frames import csv_text, tables_of

        shown = rows or next(iter(tables_of(document).values()))()
        write_whole(path, csv_text(shown).encode())


def show_tables(shown: "Sheet", csv: Path | None = None) -> None:
    """Print tables on stdout; names from files as they are, what is not printable escaped.

    The rows of the first are written as CSV where that is asked for.
    """
    show(None, bytes, shown, csv)
