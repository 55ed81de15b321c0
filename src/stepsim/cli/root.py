"""The root of the command line: how a command of the list is run, and how it ends.

Values of options are read without pydantic, which typer reads them with: its import, and its reader
of every option, given or not, take longer than a step. Texts, paths, counts and defaults need
nothing of it; all else is left to it.
"""

import atexit
import errno
import gc
import inspect
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

import typer
import typer.core

from stepsim import __version__
from stepsim.base.errors import StepsimError, UnitError, one_line
from stepsim.base.units import Quantity
from stepsim.cli.commands import COMMANDS, first_page
from stepsim.cli.terminal import Stopped

# The variable by which a shell asks what could stand at the end of a line.
_COMPLETING = "_STEPSIM_COMPLETE"
# The variables of which bash sets the first to that line, and other shells the second.
_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
_HERE = f".{os.sep}"
_STDOUT = "<stdout>"
_READER_LEFT = 141  # what a shell says of a command that SIGPIPE ended
# New objects after which it is worth to look for garbage.
_MANY = 100_000
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")


def make_app(*names: str, listed: bool = False) -> typer.Typer:
    """The command line with the commands named, else all; only their modules are imported.

    Where they are just `listed` no module is: they have their help in a line, and no options.
    """
    app = typer.Typer(
        name="stepsim",
        cls=_Root,
        help="Predict how long one training step takes on a cluster you do not have, and see why.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in names or COMMANDS:
        known = COMMANDS[name]
        hidden = not known.group
        if listed:
            app.command(name, help=known.help, hidden=hidden)(_nothing)
            continue
        module: Any = import_module(f"stepsim.cli.{known.module}")
        if known.has_parts:
            for part in module.app.registered_commands:
                part.cls = LightCommand
            app.add_typer(module.app, name=name)
            _declare(module.app)
        else:
            command = getattr(module, name.replace("-", "_") + "_command")
            # a line per paragraph: a terminal breaks lines where it ends
            paragraphs = inspect.cleandoc(command.__doc__ or known.help).split("\n\n")
            said = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
            app.command(name, cls=LightCommand, help=said, hidden=hidden)(command)
    _declare(app)
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Handle options that stand before a command."""
    if version:
        typer.echo(f"stepsim {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(first_page(), nl=False)
        raise typer.Exit(2)


def _nothing() -> None:
    """Stand for a command in a list."""


# Options of other programs that people type here, and what they are called.
_MEANT = {"--fsdp": "--zero 3", "--batch-size": "--global-batch, and --mbs of a microbatch"}


def _run(typed: list[str]) -> None:
    """Run what is typed, by the command line with that command; else with a list of them all.

    Raises StepsimError for an option of another program, saying what it is called here.
    """
    for word in typed:
        if (meant := _MEANT.get(word.partition("=")[0])) is not None:
            raise StepsimError(f"{word}: no such option: expected {meant}")
    words = typed
    if _COMPLETING in os.environ:  # the words of a shell that is to complete them
        lines = [os.environ[name] for name in _LINES if name in os.environ]
        words = "".join(lines[:1]).split()[1:]
    named = [word for word in words[:1] if word in COMMANDS]
    make_app(*named, listed=not named)(args=typed)


def _declare(app: typer.Typer) -> None:
    """Let typer read what `flag` says of options.

    No path is looked at before its reader does, which says in one line what is wrong.
    """
    for command in app.registered_commands:
        callback: Any = command.callback or _root
        known = []
        for parameter in inspect.signature(callback).parameters.values():
            told, kind, default = parameter.default, parameter.annotation, parameter.default
            if isinstance(told, Field):
                default = parameter.empty if told.default is ... else told.default
                if "typer" in told.metadata:
                    kind = Annotated[kind, told.metadata["typer"]]
            named = {"kind": parameter.KEYWORD_ONLY, "default": default, "annotation": kind}
            known.append(parameter.replace(**named))
            for declared in getattr(kind, "__metadata__", ()):
                declared.readable = False
        callback.__signature__ = inspect.Signature(known)
        callback.__annotations__ = {each.name: each.annotation for each in known}


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
                _run(sys.argv[1:])
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


def _system_error(error: OSError) -> str:
    """What failed, and why; a failed stdout gets nothing more, not even when Python ends."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename != _STDOUT:
        return f"{error.filename}: {why}" if error.filename else why
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"cannot write to stdout: {why}"


class LightCommand(typer.core.TyperCommand):
    """A command whose options read plain values themselves."""

    def get_params(self: Any, ctx: Any) -> Any:
        """The options, `--help` and those of completion among them: of a group, too."""
        parameters: Any = typer.core.TyperCommand.get_params(self, ctx)
        for each in parameters:
            if getattr(each, "_runtime_param", each) is None:  # as typer has it since 0.29
                each._runtime_param = _PlainValues(each.type_descriptor)
        return parameters


class LightGroup(typer.core.TyperGroup):
    """A group of commands whose own options read plain values themselves."""

    get_params = LightCommand.get_params


class _Root(LightGroup):
    """The group of all commands, whose help is the first page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the first page."""
        formatter.write(first_page())


class _PlainValues(NamedTuple):
    """Reads values that a type's own function reads, as typer's reader of a parameter does.

    No option asks typer to look at what a path leads to.
    """

    described: Any

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter; raises what typer raises for one that it cannot be."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind, several = self.described.annotation, isinstance(value, list | tuple)
        inside = get_args(kind)[0] if get_origin(kind) is list else kind
        try:
            read = [self._read(each, inside) for each in (value if several else [value])]
        except UnitError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None
        if several == (inside is not kind) and all(each is not None for each in read):
            return read if several else read[0]
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any, kind: Any) -> Any:
        """A value that needs no more than its type; None for others."""
        if isinstance(kind, type) and isinstance(value, kind):
            return value
        if kind not in (str, int, Path) or not isinstance(value, str):
            return None
        if kind is Path and value.startswith(_HERE):
            from stepsim.files.load import typed_path

            return typed_path(value)
        if kind is not int:
            return kind(value)
        if re.fullmatch("[0-9.]+[a-zA-Z]", value):
            value = str(Quantity.COUNT.parse(value))
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            return None
        told, number = self.described.parameter_info, int(value)
        too_small = told.min is not None and number < told.min
        return None if too_small or (told.max is not None and number > told.max) else number
