"""What functions of the interface tell of their options, and how they take their arguments.

Options are told in `help`, and to editors.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, cleandoc, signature
from textwrap import fill
from typing import Any, ParamSpec, TypeVar
from warnings import warn

from stepsim.base.errors import StepsimWarning
from stepsim.base.option import Option
from stepsim.base.structs import File
from stepsim.options import ALIASES, OPTIONS

_Inputs = ParamSpec("_Inputs")
_Output = TypeVar("_Output")
_WIDTH = 96


def takes_options(function: Callable[_Inputs, _Output]) -> Callable[_Inputs, _Output]:
    """Let `help` list every option with its unit and default, and a shell complete their names."""
    call = signature(function)
    own = [each for each in call.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    names = [name for name in OPTIONS if name not in call.parameters]
    options = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names]
    told: Any = function
    told.__signature__ = call.replace(parameters=[*own, *options])
    told.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\n{_options_text(names)}\n"
    return function


def _options_text(names: Sequence[str]) -> str:
    """Options, panel by panel: name, other names, what it is, its unit and its default."""
    lines: list[str] = []
    options = [OPTIONS[name] for name in names]
    for panel in dict.fromkeys(option.panel for option in options):
        told = [_told(option) for option in options if option.panel is panel]
        lines += [f"{panel.value}:", *told, ""]
    return "\n".join(lines).rstrip()


def _told(option: Option) -> str:
    others = [name for name, of in ALIASES.items() if of == option.name != name]
    names = " or ".join((option.name, *others))
    default = option.absent or option.text(option.default)
    unit = f" ({option.quantity.expected})" if not (option.offers or option.noun) else ""
    ends = f" Default: {default}." if default else ""
    text = f"{names}: {option.about.rstrip('.')}{unit}.{ends}"
    return fill(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)


def opened(given: Any, read: Callable[..., _Output], **how: Any) -> _Output:
    """What an argument is: a noun by itself, else what is read of its file or name."""
    return read(given, **how) if isinstance(given, File) else given


def warn_caller(texts: Iterable[str]) -> None:
    """Raise warnings in the name of the line that called the public function that calls this.

    Python shows each once per line. The public function is `checked`: the line is three frames up.
    """
    for text in dict.fromkeys(texts):
        warn(text, StepsimWarning, stacklevel=4)
