"""A console of `rich` for what is shown of a result."""

from typing import Any

from rich.console import Console
from rich.text import Text

from stepsim.base.errors import printable


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no emoji, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text to print, its lines cleaned of what a terminal would obey."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)
