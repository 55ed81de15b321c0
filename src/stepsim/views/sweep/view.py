"""What a figure of a sweep shows: its kind, its axes, and what its title says of the others."""

import re
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import SweepError, member
from stepsim.base.structs import Noun
from stepsim.base.units import time_unit
from stepsim.files.axes import Axis
from stepsim.files.sweep_table import SweepTable
from stepsim.views.words import axis_words

_MOST_PANELS = 6
_MOST_LINES = 24

_OPTION, _LONGEST_TEXT = "option ", 24
_HASH = re.compile(" [0-9a-f]{16}$")


class FigureKind(StrEnum):
    """What a figure shows over the axes of a sweep: a time, the bubble, or stacks of parts."""

    TIME = "time"
    BUBBLE = "bubble"
    BREAKDOWN = "breakdown"


def figure_kind(name: str) -> FigureKind:
    """The kind of a name; raises SweepError naming those there are."""
    return member(FigureKind, name, "kind of figure", SweepError)


class View(Noun):
    """What is drawn of a sweep: along an axis, up one (a map), lines or panels by value of `by`."""

    table: SweepTable
    kind: FigureKind
    x: Axis
    y: Axis | None
    by: Axis | None

    @property
    def shown(self) -> list[Axis]:
        """Its axes, x first."""
        return [axis for axis in (self.x, self.y, self.by) if axis]

    def measured(self) -> tuple[Floats, str]:
        """Step times or bubble fractions of the fastest scenarios, in the unit that a label names.

        They have an axis for each that is shown, and NaN where there is no result.
        """
        if self.kind is FigureKind.BUBBLE:
            (fractions,) = self.table.fastest(self.shown, ["bubble_fraction"])
            return 100 * fractions, "bubble (% of the pipeline)"
        (times,) = self.table.fastest(self.shown, ["step_time_ps"])
        unit_ps, name = time_unit(int(np.nanmax(times)))
        return times / unit_ps, f"step time ({name})"

    def title(self) -> list[str]:
        """Lines that say what is drawn, and over which axes the fastest was taken."""
        table, shown = self.table, {axis.name for axis in self.shown}
        progress = table.progress
        facts = [f"{progress.done:,} scenarios"]
        if progress.done < progress.size:
            facts = [f"{progress.done:,} of {progress.size:,} scenarios"]
        if progress.failed:
            facts.append(f"{progress.failed:,} failed")
        over = [axis_words(a.name) for a in table.axes if a.name not in shown and len(a.texts) > 1]
        if over:
            facts.append(f"fastest over {', '.join(over)}")
        given = [
            f"{axis_words(name.removeprefix(_OPTION))} {_HASH.sub('', text)}"
            for name, text in table.identity.items()
            if name.startswith(_OPTION) and len(text) <= _LONGEST_TEXT
        ]
        return [", ".join([" on ".join(table.source), *given]), "; ".join(facts)]


def choose_view(table: SweepTable, names: Sequence[str], kind: FigureKind) -> View:
    """The axes asked for, else the first two with numbers as a map, or one as lines.

    Two names with numbers make a map, other pairs lines, three names maps in panels; stacks are
    never a map. Raises SweepError for names that are no axes or not right for the
    figure, and where there are more panels or lines than can be told apart.
    """
    if len(set(names)) < len(names) or len(names) > 3:
        raise SweepError(f"figure axes are {','.join(names)}: expected one to three different axes")
    stacks = kind is FigureKind.BREAKDOWN
    chosen = [table.axis(name) for name in names] or _default(table, stacks=stacks)
    mapped = not stacks and len(chosen) > 1 and all(axis.numeric for axis in chosen[:2])
    shown = ",".join(axis.name for axis in chosen)
    if len(chosen) == 3 and not mapped:
        expected = "one or two axes" if stacks else "numbers in the first two"
        raise SweepError(f"figure axes are {shown}: expected {expected}")
    x, *rest = chosen
    y = rest.pop(0) if mapped else None
    by = rest[0] if rest else None
    most, what = (_MOST_PANELS, "panels") if mapped or stacks else (_MOST_LINES, "lines")
    if by and len(by.texts) > most:
        raise SweepError(
            f"axis {by.name} has {len(by.texts)} values: expected at most {most} {what}"
        )
    return View(table=table, kind=kind, x=x, y=y, by=by)


def _default(table: SweepTable, *, stacks: bool) -> list[Axis]:
    """Axes with several values: numbers first, and names that are few enough to be told apart."""
    several = [axis for axis in table.axes if len(axis.texts) > 1] or list(table.axes[:1])
    numbers = [axis for axis in several if axis.numeric][: 1 if stacks else 2]
    groups = [axis for axis in several if not axis.numeric]
    panels = len(numbers) == 2 or stacks
    few = [axis for axis in groups if len(axis.texts) <= (_MOST_PANELS if panels else _MOST_LINES)]
    chosen = numbers or groups[:1]
    return chosen + [axis for axis in few if axis not in chosen][:1]
