"""What commands are asked: options of a step, from the one list of them, and their own."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from stepsim.base.errors import PlanError
from stepsim.base.option import Option, Panel
from stepsim.base.quantities import Quantity
from stepsim.cli.common import completion
from stepsim.cli.common.terminal import log_shown
from stepsim.options import OPTIONS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from stepsim.files.asked import StepInputs
    from stepsim.workload.model.model import Model

ON_COMMAND_LINE = frozenset(name for name, option in OPTIONS.items() if option.flags != ())
"""Options of a step that have a flag."""
NO_MEMORY = ON_COMMAND_LINE - {"activation_size"}
"""Those of commands that show no memory."""
OF_SIZE = frozenset(
    name for name in ON_COMMAND_LINE if OPTIONS[name].panel is Panel.JOB and name != "rank_order"
)
"""Those that set the size of a job."""
OF_MODEL = frozenset(name for name, option in OPTIONS.items() if option.panel is Panel.MODEL)
"""Those that only a model can be asked."""


class _Switch(StrEnum):
    """Values of an option that is on or off."""

    ON = "on"
    OFF = "off"


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=RANGE",
        help="An axis, e.g. 'fabric.bandwidth=100..800 Gbps:8' or schedule=1f1b,zb-h1.",
    ),
]
ChunksOption = Annotated[
    int | None, typer.Option(*OPTIONS["chunks"].flags or (), help=OPTIONS["chunks"].help)
]


# no struct: options of commands are metadata of their fields
@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """What commands about a step take beside its options, which `asked` holds as typed."""

    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            "-t",
            help="Shipped topology or TOML file.",
            show_default="the device's machine, else hgx-h100",
            autocompletion=completion.topologies,
            rich_help_panel=Panel.NETWORK.value,
        ),
    ] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse files whose header and rows disagree.")
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no warnings and no progress.")
    ] = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Print each stage of the work and its time on stderr."
        ),
    ] = False
    asked: Mapping[str, object] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """The options of a step that were given, as flags."""
        own = ("topology", "strict", "comm_source", "plan_file")
        names = [*(name for name in own if getattr(self, name, None)), *self.asked]
        given = ["--" + name.replace("_", "-") for name in names]
        return [*given, "--set"] if getattr(self, "numbers", None) else given

    def file_of(self, name: str) -> Path | None:
        """The file that was typed as an option."""
        typed = self.asked.get(name)
        return None if typed is None else Path(str(typed))

    def typed_files(self) -> dict[str, str]:
        """Options that name a file, or what may lie in one, as they were typed."""
        found = {}
        for name, typed in self.asked.items():
            if OPTIONS[name].is_file or OPTIONS[name].noun:
                several = typed if isinstance(typed, list) else [typed]
                if len(several) > 1:
                    raise PlanError(f"{name}: a plan file names one file: give one")
                found[name] = str(several[0])
        return found

    def inputs(self, file: "Path | Model") -> "StepInputs":
        """Read everything that the options name; raises the errors of the readers."""
        from stepsim.files.asked import read_inputs
        from stepsim.files.topology.typed import read_numbers

        return read_inputs(
            file,
            self.topology,
            self.asked,
            comm_source=getattr(self, "comm_source", None) or "",
            strict=self.strict,
            numbers=read_numbers(getattr(self, "numbers", None) or ()),
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions(CommandOptions):
    """What commands that run a step take."""

    comm_source: Annotated[
        str | None,
        typer.Option(
            "--comm-source",
            help="Use the curves whose machine or run holds this text; !TEXT leaves them out.",
            rich_help_panel=Panel.NETWORK.value,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OneStepOptions(RunOptions):
    """What commands take whose topology has one value of each number."""

    numbers: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A number of the topology, e.g. 'fabric.bandwidth=400 Gbps'. Repeatable.",
            rich_help_panel=Panel.NETWORK.value,
        ),
    ] = None


_Options = TypeVar("_Options", bound="DataclassInstance")


def takes(
    kind: type[_Options], asked: Collection[str] = NO_MEMORY
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a dataclass and of a step; it receives them as `options`."""
    hints = get_type_hints(kind, include_extras=True)
    declared = [each for each in fields(kind) if each.name != "asked"]
    of_step = [
        _parameter(option)
        for name, option in OPTIONS.items()
        if name in asked and issubclass(kind, CommandOptions)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            typed = {each.name: arguments.pop(each.name) for each in of_step}
            given = {n: v for n, v in typed.items() if v not in (None, [])}
            own = {each.name: arguments.pop(each.name) for each in declared}
            options: Any = kind(**own, **({"asked": given} if of_step else {}))
            # Numpy makes its types in thousands of calls. Deeper in the stack each of them may
            # begin a new chunk of it, which Python asks the system for and gives back.
            import numpy  # noqa: F401

            with log_shown(enabled=own.get("verbose", False)):
                command(**arguments, options=options)

        own = inspect.signature(command).parameters
        kept = [p.replace(kind=p.KEYWORD_ONLY) for n, p in own.items() if n != "options"]
        shared = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=hints[each.name],
            )
            for each in declared
        ]
        parameters = [*kept, *of_step, *shared]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        # typer reads the signature, which mypy does not know functions to have
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


_TYPES: Mapping[Quantity, type] = {Quantity.COUNT: int, Quantity.FACTOR: float}


def _parameter(option: Option) -> inspect.Parameter:
    """A parameter of a command that typer makes a flag of; absent, it is None."""
    value: Any = str if option.read else _TYPES.get(option.quantity, str)
    if option.quantity is Quantity.SWITCH:
        value = bool if option.flags or option.default is False else _Switch
    if option.is_file:
        value = Path
    flags = option.flags or ("--" + option.name.replace("_", "-"),)
    offered = option.offers or option.choices
    shown = option.absent or (option.text(option.default) if value is not bool else "")
    declared = typer.Option(
        *flags,
        help=option.about,
        show_default=shown or False,
        autocompletion=completion.choices(offered) if offered else None,
        rich_help_panel=option.panel.value if option.panel is not Panel.RUN else None,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[value] | None if option.many else value | None, declared],
    )
