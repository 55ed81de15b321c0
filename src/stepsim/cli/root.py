"""The root of the command line: what stands before a command, and how a command ends."""

import errno
import inspect
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from threading import current_thread, main_thread
from typing import Annotated, Any, NoReturn

import typer

from stepsim import __version__
from stepsim.base import garbage
from stepsim.base.errors import StepsimError, one_line
from stepsim.cli.commands import COMMANDS
from stepsim.cli.common.terminal import Stopped
from stepsim.cli.common.values import LightCommand, LightGroup

_STDOUT = "<stdout>"
_READER_LEFT = 141  # what a shell says of a command that SIGPIPE ended
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")


@cache
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
