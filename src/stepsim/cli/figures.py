"""Options of commands that draw timelines."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.errors import OutputError

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw timelines: .png, .svg or .pdf.")
]
MessagesOption = Annotated[
    bool, typer.Option("--messages", help="Draw an arrow for every message, with --plot.")
]


def check_messages(messages: bool, plot: Path | None) -> None:
    """Raise OutputError when arrows are asked for and no figure."""
    if messages and not plot:
        raise OutputError("--messages draws arrows into a figure: name one with --plot")
