"""What the explorer's page asks: names and texts, as a person types them on the command line."""

import shlex
from collections.abc import Callable, Iterable, Mapping

from stepsim.base.errors import PlanError
from stepsim.base.option import Option
from stepsim.base.structs import Noun, replace
from stepsim.base.units import Quantity
from stepsim.files.accelerators import device_names, framework_names
from stepsim.network.topology.dimension import LAUNCH_LATENCY, is_number, split_link
from stepsim.options import OPTIONS

_MOST_NAMES, _LONGEST = 64, 200

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


class ExplorerState(Noun):
    """One question: which workload on which network, with which options and link numbers.

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
    def of(cls, plain: object) -> "ExplorerState":
        """The state in a page's message, an object of texts; raises PlanError for anything else."""
        if not isinstance(plain, dict) or len(plain) > _MOST_NAMES:
            raise PlanError(f"a state is an object with at most {_MOST_NAMES} texts")
        texts: dict[str, str] = {}
        for name, text in plain.items():
            if not isinstance(text, str) or len(text) > _LONGEST:
                raise PlanError(f"{name!r}: expected a text of at most {_LONGEST} characters")
            texts[name] = text
        workload, topology = texts.pop("workload", ""), texts.pop("topology", "")
        options = {name: text for name, text in texts.items() if name in KNOBS and text}
        numbers = {name: text for name, text in texts.items() if is_number(name) and text}
        for name in texts:
            if name not in KNOBS and name not in _NOISES and not is_number(name):
                raise PlanError(f"unknown option {name!r}: expected one of {', '.join(KNOBS)}")
        for name, names in SHIPPED_NAMES.items():
            if name in options and options[name] not in names():
                known = ", ".join(names())
                raise PlanError(f"{name} is {options[name]!r}: expected one of {known}")
        if options.get("schedule", "").endswith(".csv"):
            raise PlanError("schedule: a page reads no files: expected a name")
        return cls(
            workload=workload,
            topology=topology,
            options=dict(sorted(options.items())),
            numbers=dict(sorted(numbers.items())),
            noise={name: texts[name] for name in _NOISES if texts.get(name)},
        )

    def bare(self) -> "ExplorerState":
        """The state of the same structure with the durations of its files.

        It decides which tasks there are: states that share it differ in durations only.
        """
        kept = {n: t for n, t in self.options.items() if not KNOBS[n].durations_only}
        return replace(self, options=kept, numbers={}, noise={})

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
