"""What the explorer's page asks: names and texts, as a person types them on the command line."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from stepsim.base.errors import PlanError
from stepsim.base.option import Option
from stepsim.base.structs import Noun, noun_of, replace
from stepsim.base.units import Quantity
from stepsim.explore.batch.scenarios import PHASES
from stepsim.files.accelerators import device_names, framework_names
from stepsim.files.asked import read_options
from stepsim.network.topology.dimension import LAUNCH_LATENCY, is_number, split_link
from stepsim.options import OPTIONS

KNOBS: Mapping[str, Option] = {
    name: option for name, option in OPTIONS.items() if option.is_axis and not option.is_file
}
"""Options of a step that a page can set: none of them names a file."""

SHIPPED_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "device": device_names,
    "framework": framework_names,
}
"""Options that may name a file on the command line: a page gives a shipped name."""

NOISE = "noise."
_NOISES = (f"{NOISE}compute", f"{NOISE}links")


class Question(Noun):
    """What a page asks: a kind of answer about a state, and what the kind needs.

    The `state` holds all that is set on the page, as typed. Tasks are asked for between the times
    `low` and `high` in ps, a map over the numbers `x` and `y`, files to take away by an `export`.
    """

    kind: Literal[
        "choices", "numbers", "lines", "live", "shown", "varies", "sliders", "plans", "helps",
        "tasks", "worth", "map",
    ] = "shown"  # fmt: skip
    state: Annotated[Mapping[str, Annotated[str, Meta(max_length=200)]], Meta(max_length=64)] = {}
    low: int = 0
    high: int = 0
    x: str = ""
    y: str = ""
    export: str = ""

    @classmethod
    def of(cls, plain: object) -> "Question":
        """The question in a page's message; raises PlanError for anything else."""
        return noun_of("question", plain, cls, PlanError)

    @property
    def more(self) -> tuple[Any, ...]:
        """What its kind needs beside the state."""
        return {"tasks": (self.low, self.high), "map": (self.x, self.y)}.get(self.kind, ())


class ExplorerState(Noun):
    """What a question is about: a workload on a network, with options and numbers of links.

    `workload` and `topology` are names of a `Library`. `options` are options of a step that differ
    from their default, `numbers` values of links such as `fabric.bandwidth`, `noise` coefficients
    of variation; all as typed.
    """

    workload: str
    topology: str
    options: Mapping[str, str]
    numbers: Mapping[str, str]
    noise: Mapping[str, str]

    def __hash__(self) -> int:
        return hash((self.workload, self.topology, *self.options.items()))

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> "ExplorerState":
        """The state of a question's texts; raises PlanError for what no page may name."""
        texts = {name: text for name, text in sorted(asked.items()) if text}
        workload, topology = texts.pop("workload", ""), texts.pop("topology", "")
        for name, text in texts.items():
            if name not in KNOBS and name not in _NOISES and not is_number(name):
                raise PlanError(f"unknown option {name!r}: expected one of {', '.join(KNOBS)}")
            shipped = SHIPPED_NAMES.get(name)
            if shipped and text not in shipped():
                known = ", ".join(shipped())
                raise PlanError(f"{name} is {text!r}: expected one of {known}")
        if texts.get("schedule", "").endswith(".csv"):
            raise PlanError("schedule: a page reads no files: expected a name")
        return cls(
            workload=workload,
            topology=topology,
            options={name: text for name, text in texts.items() if name in KNOBS},
            numbers={name: text for name, text in texts.items() if is_number(name)},
            noise={name: text for name, text in texts.items() if name in _NOISES},
        )

    def bare(self) -> "ExplorerState":
        """The state of the same structure with the durations of its files.

        It decides which tasks there are: states that share it differ in durations only.
        """
        kept = {n: t for n, t in self.options.items() if not KNOBS[n].durations_only}
        return replace(self, options=kept, numbers={}, noise={})

    @property
    def columns(self) -> dict[str, float]:
        """Its durations as columns of a batch: bytes/s, ps, factors."""
        typed = {name: text for name, text in self.options.items() if KNOBS[name].durations_only}
        options, _ = read_options(typed)
        found = {
            name: cast(float, number_quantity(name).parse(text))
            for name, text in self.numbers.items()
        }
        if scale := options.compute_scale:
            found |= {f"compute_scale.{phase}": getattr(scale, phase) for phase in PHASES}
        if options.host_overhead_ps:
            found["host_overhead"] = options.host_overhead_ps
        return found

    def command(self, workload_file: str, topology_file: str) -> str:
        """The command that gives the same step."""
        files = file_word(workload_file), "--topology", file_word(topology_file)
        words = ["stepsim", "simulate", *files]
        for name, text in self.options.items():
            words += KNOBS[name].words(text)
        for name, text in self.numbers.items():
            words += ["--set", f"{name}={text}"]
        return shlex.join(words)

    def python(self, workload_file: str, topology_file: str) -> str:
        """Lines of Python that give the same step."""
        numbers = f", numbers={dict(self.numbers)!r}" if self.numbers else ""
        texts = self.options.items()
        options = "".join(f", {n}={t if t.isdecimal() else repr(t)}" for n, t in texts)
        return (
            "import stepsim\n\n"
            f"topology = stepsim.load_topology({topology_file!r}{numbers})\n"
            f"result = stepsim.simulate({workload_file!r}, topology{options})\n"
            "print(result.report.step_time_ps)\n"
        )


def file_word(name: str) -> str:
    """A file as a word of a command: one that begins with a dash is no option."""
    return f"./{name}" if name.startswith("-") else name


def number_quantity(name: str) -> Quantity:
    """What a number of a network is: a bandwidth, a time or a factor."""
    field = split_link(name)[1]
    return field.quantity if field else LAUNCH_LATENCY.quantity


def number_text(name: str, value: float) -> str:
    """A number of a network as people type it; times are whole picoseconds."""
    return number_quantity(name).text(value)
