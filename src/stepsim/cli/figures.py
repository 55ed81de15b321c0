"""Options of commands that draw."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.errors import OutputError
from stepsim.figure_style import FigureStyle

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw timelines: .png, .svg or .pdf.")
]
MessagesOption = Annotated[
    bool, typer.Option("--messages", help="Draw an arrow for every message, with --plot.")
]
StyleOption = Annotated[
    FigureStyle,
    typer.Option(
        "--style",
        help="Width and type of figures: screen, or a paper's column (3.3 in) or page (7 in).",
    ),
]


def check_messages(messages: bool, plot: Path | None) -> None:
    """Raise OutputError when arrows are asked for and no figure."""
    if messages and not plot:
        raise OutputError("--messages draws arrows into a figure: name one with --plot")
