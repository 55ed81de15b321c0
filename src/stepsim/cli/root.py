"""The root of the command line: how a command of the list is run, and how it ends."""

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedWriter, FileIO, StringIO, TextIOWrapper
from threading import current_thread, main_thread
from typing import Any, NoReturn

import click

from stepsim import __version__
from stepsim.base.errors import StepsimError, one_line
from stepsim.cli.commands import COMMANDS, first_page
from stepsim.cli.terminal import Stopped

_STDOUT = "<stdout>"
_READER_LEFT = 141  # what a shell says of a command that SIGPIPE ended
# New objects after which it is worth to look for garbage.
_MANY = 100_000
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")


class _Root(click.Group):
    """The group of all commands, each imported when it is asked for; its help is the first page."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the first page."""
        return [*COMMANDS]

    def get_command(self, _ctx: click.Context | None, name: str) -> click.Command | None:
        """A command by its name, None for other words."""
        if name not in COMMANDS:
            return None
        known = COMMANDS[name]
        module = import_module(f"stepsim.cli.{known.module}")
        command: click.Command = getattr(module, name.replace("-", "_") + "_command")
        command.hidden = not known.group
        return command

    def format_help(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first page."""
        formatter.write(first_page())


def make_app() -> _Root:
    """The command line with all its commands."""
    app = _Root("stepsim", context_settings={"help_option_names": ["-h", "--help"]})
    return click.version_option(__version__, message="stepsim %(version)s")(app)


# Options of other programs that people type here, and what they are called.
_MEANT = {"--fsdp": "--zero 3", "--batch-size": "--global-batch, and --mbs of a microbatch"}


def _run(typed: list[str]) -> int:
    """Run what is typed; returns the exit code that the command asks for.

    Raises StepsimError for what no command takes; of an option of another program it says what it
    is called here.
    """
    for word in typed:
        if (meant := _MEANT.get(word.partition("=")[0])) is not None:
            raise StepsimError(f"{word}: no such option: expected {meant}")
    for word in typed[:1]:
        if not (word.startswith("-") or word in COMMANDS):
            from difflib import get_close_matches

            close = get_close_matches(word, COMMANDS, n=1)
            meant = (
                f"did you mean {close[0]}?" if close else f"expected one of {', '.join(COMMANDS)}"
            )
            raise StepsimError(f"{word}: no such command: {meant}")
    try:
        code = make_app().main(typed, "stepsim", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        own = " ".join(["stepsim", *(COMMANDS.keys() & typed[:1])])
        command = error.ctx.command_path if error.ctx else own
        said = one_line(error.format_message()).removesuffix(".")
        raise StepsimError(f"{said} ({command} --help says what it takes)") from None
    return code or 0


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
    # the collector would walk through modules and classes a hundred times as they are made
    gc.set_threshold(_MANY)
    atexit.register(gc.freeze)
    try:
        with _stoppable():
            try:
                code = _run(sys.argv[1:])
            finally:
                sys.stdout.flush()  # what stdout says of it is said here, not when Python ends
        if code:
            sys.exit(code)
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
    click.echo(f"error: {why}" if code == 2 else why, err=True)
    sys.exit(code)


def _lacks_memory(error: Exception) -> bool:
    """Whether Python, the loader of libraries or a new thread found no memory."""
    text = str(error)
    return isinstance(error, MemoryError) or any(sign in text for sign in _NO_MEMORY)


def _prepare_output() -> None:
    """Let names hold what the terminal's encoding lacks, and tell stdout's errors from others."""
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
    if sys.stdout is None:  # who started this has closed it
        sys.stdout = StringIO()


def _system_error(error: OSError) -> str:
    """What failed, and why; a failed stdout gets nothing more, not even when Python ends."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename != _STDOUT:
        return f"{error.filename}: {why}" if error.filename else why
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"cannot write to stdout: {why}"
