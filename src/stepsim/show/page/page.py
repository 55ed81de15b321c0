"""A page: sections of facts, tables and figures, written as one HTML file that needs nothing else.

What comes from files is text everywhere: the template escapes it, the script only ever sets it as
text, and the content security policy runs no script but the two whose digests it names, and loads
nothing.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepsim import __version__
from stepsim.base.structs import Names, Noun
from stepsim.parallel.schedules import BUILDERS
from stepsim.show.headlines import Headline
from stepsim.show.page.figures import Plot, roots
from stepsim.show.palette import IDLE, IDLE_PARTS, ON_DARK, PART_COLOURS
from stepsim.show.tables.model import (
    COUNT,
    Cell,
    Column,
    Ordered,
    Pairs,
    Room,
    Table,
    axis_words,
    short_value,
)

if TYPE_CHECKING:
    from markupsafe import Markup

_ESCAPES = str.maketrans(
    {c: f"\\u{ord(c):04x}" for c in ("<", ">", "&", "\u2028", "\u2029")}
)  # what could end a script element


class Chart(Noun):
    """A figure with its legend (name, colour), and what can be done with it."""

    plot: Plot
    title: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""


class Section(Noun):
    """A part of a page under a heading; what is empty is not shown.

    `legend` (name, colour) is that of all its charts. Two `half` sections stand beside each other
    where there is room.
    """

    name: str
    heading: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    half: bool = False
    tables: tuple[Table, ...] = ()
    notes: Names = ()
    missing: str = ""


class Page(Noun):
    """What a report shows. `facts` are the few large numbers, `settings` the job in words.

    `notices` are warnings that change the answer, `assumed` what nobody said.
    """

    title: str
    subtitle: str
    facts: tuple[Headline, ...]
    settings: Pairs
    sections: tuple[Section, ...]
    command: str
    notices: Names = ()
    assumed: Names = ()

    @property
    def is_wrong(self) -> bool:
        """Whether a fact is one that cannot be."""
        return any(fact.wrong for fact in self.facts)

    @property
    def plots(self) -> list[Plot]:
        """All figures in order."""
        return [chart.plot for section in self.sections for chart in section.charts]


def render(page: Page) -> bytes:
    """The page as UTF-8 HTML, the same bytes every time."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("stepsim.show.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "heading": _heading,
        "columns": _columns,
        "text": _text,
        "breakable": _breakable,
        "order": _order,
        "paint": _paint,
    }
    from markupsafe import Markup

    # a page without figures carries no library
    scripts = [_bokeh_js(), _part("report.js")] if page.plots else [_part("report.js")]
    embedded = _embedded(page.plots) | {"on_dark": dict(ON_DARK)}
    data = json.dumps(embedded, separators=(",", ":")).translate(_ESCAPES)
    html = environment.get_template("report.html.jinja").render(
        page=page,
        version=__version__,
        style=Markup(_part("report.css")),
        on_dark=tuple(ON_DARK.items()),
        hatches=_HATCHES,
        data=Markup(data),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
    )
    return html.encode()


_LINES = (
    "M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5",
    "M0,0 L6,6 M0,6 L6,0",
    "M-1,5 L1,7 M0,0 L6,6 M5,-1 L7,1",
)
"""Hatches by the path that a tile of 6 by 6 repeats: rising, crossing, falling."""

_HATCHES = {
    PART_COLOURS[part]: (f"hatch-{part.key}", path)
    for part, path in zip(IDLE_PARTS, _LINES, strict=True)
} | {IDLE: ("hatch-idle", _LINES[0])}
"""Name and lines of the hatch that stands for a colour of idle time."""


def _paint(colour: str) -> str:
    """What a rectangle of a colour is filled with: idle time is hatched."""
    return f"url(#{_HATCHES[colour][0]})" if colour in _HATCHES else colour


def _heading(name: str) -> str:
    """A name as a page writes it; `p2p`, schedules and the like stay as they are."""
    words = axis_words(name)
    first = words.partition(" ")[0]
    is_name = first.partition(":")[0] in BUILDERS or any(map(str.isdigit, first))
    return words if is_name else words[:1].upper() + words[1:]


def _columns(table: Table) -> list[tuple[int, str, Column]]:
    return table.shown(Room.EVERYWHERE, Room.PAGE)


def _text(value: Cell, column: Column) -> str:
    """A cell as a page writes it: thousands of a count apart, few digits of a setting."""
    if column is COUNT and isinstance(value, int | float):
        return f"{value:,}"
    return short_value(value.text) if isinstance(value, Ordered) else column.text(value)


def _breakable(text: str) -> "Markup":
    """Escaped text whose long names may be broken after `/`, `_` and `:`, and nowhere else."""
    from markupsafe import Markup, escape

    return Markup(re.sub("(?<=[^ ]{4})([/_:])(?=[^ ]{4})", r"\1<wbr>", str(escape(text))))


def _order(value: Cell) -> float | None:
    """The number that a cell is sorted by, None for texts."""
    value = value.order if isinstance(value, Ordered) else value
    return value if isinstance(value, int | float) else None


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded, only these scripts run. Bokeh's figures carry style elements."""
    digests = " ".join(map(content_digest, scripts))
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _part(name: str) -> str:
    return resources.files("stepsim.show.page").joinpath("templates", name).read_text("utf-8")


def _bokeh_js() -> str:
    """Bokeh's own script, as its Python package carries it."""
    import bokeh

    folder = Path(bokeh.__file__).parent / "server" / "static" / "js"
    return (folder / "bokeh.min.js").read_text("utf-8")


def _embedded(plots: Sequence[Plot]) -> dict[str, Any]:
    """The figures as Bokeh reads them, and what the page's script says of them."""
    if not plots:
        return {"document": None, "plots": []}
    from bokeh.core.json_encoder import serialize_json
    from bokeh.document import Document

    document = Document(title="")
    for model in roots(plots):
        document.add_root(model)
    plain = json.loads(serialize_json(document.to_json(deferred=False)))
    numbers: dict[str, str] = {}
    _number_models(plain, numbers)
    return {
        "document": plain,
        "plots": [
            {"place": plot.name, "root": numbers[plot.figure.id], "data": plot.data}
            for plot in plots
        ],
    }


def _number_models(value: Any, numbers: dict[str, str]) -> None:
    """Number models in the order in which they are met: Bokeh counts on from page to page."""
    if isinstance(value, list):
        for each in value:
            _number_models(each, numbers)
    elif isinstance(value, dict):
        if isinstance(value.get("id"), str):
            value["id"] = numbers.setdefault(value["id"], f"m{len(numbers)}")
        for each in value.values():
            _number_models(each, numbers)


def content_digest(text: str) -> str:
    """A script or style as a policy names it, in its quotes."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
