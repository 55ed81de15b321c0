"""One question of a page and its answer, both plain data."""

from collections.abc import Mapping
from typing import Any

from stepsim.base.errors import PlanError, StepsimError, one_line
from stepsim.base.option import Option
from stepsim.base.structs import Noun, shipped
from stepsim.base.units import Quantity
from stepsim.files.accelerators import device_names, read_device
from stepsim.serve.explorer import Explorer
from stepsim.serve.export import EXPORTS
from stepsim.serve.recorded import recorded_lines
from stepsim.serve.state import KNOBS, SHIPPED_NAMES, ExplorerState
from stepsim.show.page.facts import Plain
from stepsim.show.page.looks import looks
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload


class Answers(Noun):
    """Answers questions, each an object with `kind`, `state` and what the kind needs."""

    explorer: Explorer

    def answer(self, question: object) -> Plain:
        """The answer to a question; a mistake of the person's is an answer with `error`.

        The program's own mistakes are raised.
        """
        try:
            if not isinstance(question, dict) or question.get("kind") not in _KINDS:
                raise PlanError(f"a question has a kind: expected one of {', '.join(_KINDS)}")
            return self._found(question)
        except StepsimError as error:
            return {"error": one_line(str(error))}

    def _found(self, question: Mapping[str, object]) -> Plain:
        """The answer to a question of a known kind; raises StepsimError."""
        kind, more = str(question["kind"]), tuple[object, ...]()
        if kind == "choices":
            return self.choices()
        state = ExplorerState.of(question.get("state"))
        if kind == "lines":
            return self.lines(state)
        if kind == "tasks":
            more = tuple(_part(question, name, int, "whole number") for name in ("low", "high"))
        elif kind == "map":
            more = tuple(_part(question, name, str, "text") for name in ("x", "y"))
        found: Any = getattr(self.explorer, kind)(state, *more)
        return {kind: found} if kind == "numbers" else found

    def choices(self) -> Plain:
        """What a page needs once: names, controls, colours."""
        library, first = self.explorer.library, shipped(__file__, "first.toml", dict[str, Any])
        machines = {name: read_device(name).topology for name in device_names()}
        given = next(iter(library.works), None)  # else a page opens with a job that fits
        return {
            "works": library.work_choices(),
            "start": first["start"] if given is None else {"workload": given},
            "topologies": library.topology_choices(),
            "machines": {name: topology for name, topology in machines.items() if topology},
            "controls": [
                _control(KNOBS[name], part)
                for part, names in first["controls"].items()
                for name in names
            ],
            "exports": EXPORTS,
            **looks(),
        }

    def lines(self, state: ExplorerState) -> Plain:
        """The command and the Python lines that give the state's step."""
        library = self.explorer.library
        ran = library.work(state.workload)
        if not isinstance(ran, Workload | Model):
            return recorded_lines(ran, library.file_of(state.workload))
        names = library.file_of(state.workload), library.file_of(state.topology)
        return {"command": state.command(*names), "python": state.python(*names)}


def _control(option: Option, part: str) -> Plain:
    """How a page shows an option: its place, name, help, default and choices."""
    names = option.choices or option.offers or SHIPPED_NAMES.get(option.name)
    choices = list(names()) if names else []
    if option.quantity is Quantity.SWITCH:
        choices = ["on", "off"]
    absent = option.absent or option.text(option.default)
    return {
        "name": option.name,
        "part": part,
        "help": option.about,
        "choices": list(map(str, choices)),
        "open": option.offers is not None,
        "absent": absent or "as in the file",
        "durations_only": option.durations_only,
    }


def _part(question: Mapping[str, object], name: str, kind: type, words: str) -> object:
    """What a question says under a name, of one kind alone: True and False are no numbers."""
    value = question.get(name)
    if type(value) is not kind:
        raise PlanError(f"{name} is {value!r}: expected a {words}")
    return value


# Kinds of questions; those that `Answers` does not name are questions to the explorer.
_KINDS = (
    *("choices", "numbers", "lines", "live", "shown", "varies", "sliders"),
    *("plans", "helps", "tasks", "worth", "map"),
)
LONG = frozenset({"shown", "varies", "worth", "map", "helps", "tasks"})
"""Kinds of questions that may take long; `live` is asked of structures that are known."""
