"""The root of the command line: the list of commands, how one is run, and how it ends.

The list of commands says in which module each of them is, and what its help says in a line. It
needs no more, so that it is there before any module of a command is read.

Values of options are read without pydantic, which typer reads them with: its import, and its reader
of every option, given or not, take longer than a step. Texts, paths, counts and defaults need
nothing of it; all else is left to it.
"""

import errno
import inspect
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

import typer
import typer.core

from stepsim import __version__
from stepsim.base import garbage
from stepsim.base.errors import StepsimError, one_line
from stepsim.cli.terminal import Stopped


class _Listed(NamedTuple):
    """A command, or a group of them: its module in `stepsim.cli`, and its help in a line."""

    module: str
    help: str
    is_group: bool = False


COMMANDS: Mapping[str, _Listed] = MappingProxyType(
    {
        "simulate": _Listed(
            "simulate",
            "Simulate one training step of a model or workload, or replay a measured run or "
            "profile.",
        ),
        "compare": _Listed("compare", "Compare pipeline schedules on a model or a workload FILE."),
        "inspect": _Listed(
            "inspect",
            "Print what stepsim understands of a workload, a topology, a measured run or a "
            "profile.",
        ),
        "convert": _Listed(
            "convert",
            "Write a schedule as a CSV file in torch's pipeline notation.",
        ),
        "diff": _Listed(
            "compare",
            "Explain the difference of two step times: settings, components, stages, links.",
        ),
        "collective": _Listed(
            "collective",
            "Price one collective: time, algbw and busbw (as in nccl-tests), and the links it "
            "uses.",
        ),
        "sensitivity": _Listed(
            "sensitivity",
            "Print the step time saved by 1 % of each bandwidth, latency and compute time of FILE.",
        ),
        "noise": _Listed(
            "sensitivity",
            "Print the distribution of the step time of FILE when task times vary at random.",
        ),
        "validate": _Listed(
            "measured",
            "Compare measured RUNs, or a table of measured steps, with their simulation.",
        ),
        "what-if": _Listed(
            "measured",
            "Simulate a measured RUN with another schedule, balance or bandwidth.",
        ),
        "improve": _Listed(
            "profiles",
            "Rank changes of a profiled RUN by the step time that they save.",
        ),
        "sweep": _Listed(
            "sweep",
            "Simulate every combination of some axes and write each result to a database.",
        ),
        "sweep-report": _Listed(
            "sweep",
            "Print, export or draw the results of a sweep, also while it is running.",
        ),
        "plan": _Listed(
            "plan",
            "Search the plans of a MODEL on some GPUs, and simulate the best ones exactly.",
        ),
        "check": _Listed(
            "plan",
            "Simulate a PLAN and compare it with a budget; exit code 1 if it exceeds the budget.",
        ),
        "serve": _Listed(
            "serve",
            "Open an explorer in the browser: change a number and see the new step.",
        ),
        "export-site": _Listed(
            "serve",
            "Write the explorer as a folder of files that any web server can offer.",
        ),
        "report": _Listed(
            "documents",
            "Write a stored result as one HTML page; --report of other commands shows more of a "
            "step.",
        ),
        "schema": _Listed(
            "documents",
            "Print the JSON Schema of a file format, e.g. for an editor that checks topology "
            "files.",
        ),
        "measure": _Listed(
            "measure",
            "Time kernels of a MODEL on this machine's GPU, and write a device file (needs torch).",
        ),
        "doctor": _Listed("doctor", "Check this installation; exit code 1 if something is broken."),
        "calibrate": _Listed(
            "calibrate",
            "Fit the numbers of a machine to measurements.",
            is_group=True,
        ),
    }
)
"""Commands by name, in the order of the help."""

_STDOUT = "<stdout>"
_READER_LEFT = 141  # what a shell says of a command that SIGPIPE ended
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")


def make_app(names: tuple[str, ...] = (*COMMANDS,), *, listed: bool = False) -> typer.Typer:
    """The command line with the commands named; only their modules are imported.

    Where they are just `listed` no module is: they have their help in a line, and no options.
    """
    app = typer.Typer(
        name="stepsim",
        cls=LightGroup,
        help="Predict how long one training step takes on a cluster you do not have, and see why.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in names:
        if listed:
            app.command(name, help=COMMANDS[name].help)(_nothing)
        elif COMMANDS[name].is_group:
            group = _module(name).app
            app.add_typer(group, name=name)
            _leave_files_to_readers(group)
        else:
            command = getattr(_module(name), name.replace("-", "_") + "_command")
            said = command.__doc__ or COMMANDS[name].help  # python -OO leaves docstrings out
            app.command(name, cls=LightCommand, help=said)(command)
    _leave_files_to_readers(app)
    return app


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Handle options that stand before a command."""
    if version:
        typer.echo(f"stepsim {__version__}")
        raise typer.Exit


def _module(name: str) -> Any:
    return import_module(f"stepsim.cli.{COMMANDS[name].module}")


def _nothing() -> None:
    """Stand for a command in a list."""


def _asked(words: list[str]) -> typer.Typer:
    """The command line with the command that the words begin with, or with all of them."""
    if words[:1] and words[0] in COMMANDS:
        return make_app((words[0],))
    return make_app(listed=words[:1] in ([], ["-h"], ["--help"]))


def _leave_files_to_readers(app: typer.Typer) -> None:
    """Let no path be looked at before its reader does, which says in one line what is wrong."""
    for command in app.registered_commands:
        for parameter in inspect.signature(command.callback or _root).parameters.values():
            for declared in getattr(parameter.annotation, "__metadata__", ()):
                declared.readable = False


class _Stdout(FileIO):
    """Standard output, whose errors say that they are its own."""

    def write(self, data: Any, /) -> int:
        """Write bytes; raises OSError with the file name `<stdout>`."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STDOUT
            raise


def main() -> None:
    """Run the command line; a user's mistake prints one message and exits with 2."""
    # numpy's own threads are of no use here, and each takes memory that there may not be
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _prepare_output()
    try:
        with _stoppable(), garbage.seldom():
            try:
                _asked(sys.argv[1:])()
            finally:
                sys.stdout.flush()  # what stdout says of it is said here, not when Python ends
    except StepsimError as error:
        _fail(str(error))
    except OSError as error:
        why = one_line(_system_error(error))
        if error.errno == errno.EPIPE and error.filename == _STDOUT:
            sys.exit(_READER_LEFT)
        _fail(why)
    except (MemoryError, ImportError, RuntimeError) as error:
        if not _lacks_memory(error):
            raise
        _fail("not enough memory")
    except Stopped as stopped:
        _fail(stopped.text, stopped.code)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a command, once: what it does to end well goes on undisturbed."""
    if current_thread() is not main_thread():
        yield
        return
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }

    def stop(number: int, _frame: object) -> NoReturn:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    def lost(error: "sys.UnraisableHookArgs") -> None:
        if isinstance(error.exc_value, Stopped):  # it met code that lets nothing through
            os._exit(error.exc_value.code)
        told(error)

    told, sys.unraisablehook = sys.unraisablehook, lost
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        sys.unraisablehook = told
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(why: str, code: int = 2) -> NoReturn:
    typer.echo(f"error: {why}" if code == 2 else why, err=True)
    sys.exit(code)


def _lacks_memory(error: Exception) -> bool:
    """Whether Python, the loader of libraries or a new thread found no memory."""
    text = str(error)
    return isinstance(error, MemoryError) or any(sign in text for sign in _NO_MEMORY)


def _prepare_output() -> None:
    """Let names hold what the terminal's encoding lacks, and tell stdout's errors from others."""
    _reopen_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if os.name == "posix" and type(old := sys.stdout) is TextIOWrapper:
        sys.stdout = TextIOWrapper(
            BufferedWriter(_Stdout(old.fileno(), "wb", closefd=False)),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def _reopen_closed() -> None:
    """Open standard streams that the shell has closed (`>&-`), so that no other file takes over.

    Nothing comes from stdin, stderr leads nowhere, and writing to stdout fails as it should: with
    "Bad file descriptor", since nobody can see a result.
    """
    for name, mode, flags in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8", closefd=False))


def _system_error(error: OSError) -> str:
    """What failed, and why; a failed stdout gets nothing more, not even when Python ends."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename != _STDOUT:
        return f"{error.filename}: {why}" if error.filename else why
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"cannot write to stdout: {why}"


class LightCommand(typer.core.TyperCommand):
    """A command whose options read plain values themselves."""

    def get_params(self, ctx: Any) -> Any:
        """The options, `--help` among them."""
        return _lightened(super().get_params(ctx))


class LightGroup(typer.core.TyperGroup):
    """A group of commands whose own options read plain values themselves."""

    def get_params(self, ctx: Any) -> Any:
        """The options, those of completion among them."""
        return _lightened(super().get_params(ctx))


def _lightened(parameters: Any) -> Any:
    for each in parameters:
        if getattr(each, "_runtime_param", each) is None:  # as typer has it since 0.29
            each._runtime_param = _PlainValues(each.type_descriptor)
    return parameters


class _PlainValues:
    """Reads values that a type's own function reads, as typer's reader of a parameter does."""

    def __init__(self, described: Any) -> None:
        kind, self.several = described.annotation, get_origin(described.annotation) is list
        self.kind = get_args(kind)[0] if self.several else kind
        self.is_plain = self.kind in (str, int, Path) and not _is_checked(described.parameter_info)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter; raises what typer raises for one that it cannot be."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        read = _all(value, self._read) if self.several else self._read(value)
        if read is not None:
            return read
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any) -> Any:
        """A value that needs no more than its type; None for others."""
        if isinstance(self.kind, type) and isinstance(value, self.kind):
            return value
        if not self.is_plain or not isinstance(value, str):
            return None
        return self.kind(value) if self.kind is not int or _is_count(value) else None


def _all(values: Any, read: Any) -> Any:
    if not isinstance(values, list | tuple):
        return None
    found = [read(each) for each in values]
    return None if any(each is None for each in found) else found


def _is_checked(declared: Any) -> bool:
    """Whether typer looks at more than the type: at what a path leads to, or how large it is."""
    checks = ("exists", "readable", "writable", "resolve_path", "allow_dash", "parser", "path_type")
    limits = (declared.min, declared.max, declared.clamp or None)
    of_path = any(getattr(declared, each, None) for each in checks)
    return of_path or not (declared.file_okay and declared.dir_okay) or limits != (None,) * 3


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
