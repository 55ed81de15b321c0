"""What the slices of a run are called, and the facts about them."""

from collections.abc import Mapping, Sequence

import numpy as np

from stepsim.base.arrays import rows_of
from stepsim.documents.trace import Category, Fact, Label
from stepsim.parallel.schedules import OrderEntry
from stepsim.run.spans import UNKNOWN, Spans, TaskKind, TaskPhase

# Phases whose work has a category of another name.
_OTHER_NAMES = {TaskPhase.UNKNOWN: Category.FUSED, TaskPhase.UPDATE: Category.PER_STEP}

# What is told of a span where it is known: columns, and the names of the facts.
_FACTS = {
    **{name: name for name in ("step", "stage", "group", "peer", "size_bytes", "microbatch")},
    "chunk": "virtual_stage",
}
# What is told of the action that holds a span.
_OF_ACTIONS = ("microbatch", "chunk")

Comms = Sequence[Mapping[str, Fact]]
"""What is known of the communications of a simulated step, by their numbers."""


def actions_of(entries: Sequence[OrderEntry]) -> list[Label]:
    """Labels of the entries of a schedule's order."""
    several = any(part.chunk > 0 for entry in entries for part in entry.parts())
    return [_action(entry, numbered=several) for entry in entries]


def _action(entry: OrderEntry, *, numbered: bool) -> Label:
    """Label of an entry; chunks are `numbered` where there are several."""
    parts = entry.parts()
    first, second = parts[0], parts[-1]
    facts: dict[str, Fact] = {
        "action": entry.token,
        "chunk": first.chunk,
        "microbatch": first.microbatch,
    }
    if len(parts) > 1:
        facts |= {"backward_chunk": second.chunk, "backward_microbatch": second.microbatch}
    return Label(
        name=" + ".join(
            f"{part.kind}{part.microbatch}" + f" chunk {part.chunk}" * numbered for part in parts
        ),
        category=Category[first.kind.name] if len(parts) == 1 else Category.FUSED,
        facts=facts,
    )


def labels_of(spans: Spans, comms: Comms = ()) -> list[Label]:
    """Labels of the spans of a rank, each by itself; `comms` are those of a simulated step."""
    columns = {name: getattr(spans, name) for name in ("name", "kind", "phase", *_FACTS)}
    for name in _OF_ACTIONS:
        columns[name] = np.where(spans.entry == UNKNOWN, columns[name], UNKNOWN)
    keys = list(rows_of(*columns.values()))
    labels = {key: _label(spans, comms, *key) for key in set(keys)}
    return [labels[key] for key in keys]


def _label(spans: Spans, comms: Comms, place: int, kind: int, phase: int, *facts: int) -> Label:
    """What a span is: its name, category, and the facts that are known.

    A collective of a simulated step is called as what it is; its name is that of a row.
    """
    told = dict(zip(_FACTS, facts, strict=True))
    known: dict[str, Fact] = {_FACTS[n]: fact for n, fact in told.items() if fact >= 0}
    name, part = spans.names[place], TaskPhase(phase)
    if part is not TaskPhase.UNKNOWN:
        known["phase"] = part.name.lower()
    if (number := told["group"]) >= 0:
        known |= comms[number] if comms else {"group": spans.groups[number]}
    if comms and kind == TaskKind.COLLECTIVE:
        known["row"], name = name, f"{known['group']} {known['collective']}"
    of_phase = _OTHER_NAMES.get(part) or Category[part.name]
    category = Category.__members__.get(TaskKind(kind).name, of_phase)
    return Label(name=name, category=category, facts=known)
