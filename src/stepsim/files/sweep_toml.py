"""Sweep files: TOML that says what the flags of `stepsim sweep` say."""

from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun, Values, replace
from stepsim.files.load import beside
from stepsim.files.reading import read_toml

_Scalar = str | int | float | bool
_Value = _Scalar | Annotated[list[_Scalar], Meta(min_length=1)]
_Axis = Annotated[
    _Value | dict[str, _Value | dict[str, Any]],
    Meta(
        description="a range, a list, or a table of such: `fabric.bandwidth` is a key in `fabric`",
        examples=["100..800 Gbps:8", ["1f1b", "interleaved:4"]],
    ),
]


class OutputTable(Noun, forbid_unknown_fields=True):
    """`[output]`: where results go."""

    database: Annotated[str | None, Meta(description="SQLite file")] = None
    export: Annotated[list[str], Meta(description="tables, .csv or .parquet")] = []
    plot: Annotated[str | None, Meta(description="figure, .png, .svg or .pdf")] = None
    plot_kind: Annotated[str | None, Meta(description="what it shows, as --plot-kind")] = None
    plot_axes: Annotated[str | None, Meta(description="names of its axes, x,y")] = None
    report: Annotated[str | None, Meta(description="HTML page")] = None
    style: Annotated[str | None, Meta(description="width and type of figures")] = None
    breakdown: Annotated[bool | None, Meta(description="whether the parts are stored")] = None


class RunTable(Noun, forbid_unknown_fields=True):
    """`[run]`: who computes."""

    jobs: Annotated[int | None, Meta(description="local processes; default: processors")] = None
    executor: Annotated[str | None, Meta(description="local or dask")] = None
    scheduler: Annotated[str | None, Meta(description="address of a Dask scheduler")] = None


class SweepFile(Noun, forbid_unknown_fields=True):
    """A sweep file. `axes` maps names to ranges; paths are those of the file's folder."""

    workload: Annotated[str, Meta(description="a workload file, from the folder of this one")]
    axes: Annotated[dict[str, _Axis], Meta(description="what is varied, by name of the axis")]
    options: Annotated[
        dict[str, _Scalar], Meta(description="of `stepsim simulate`, by their long names")
    ] = {}
    output: OutputTable = OutputTable()
    run: RunTable = RunTable()


def read_sweep(path: Path) -> SweepFile:
    """The sweep in a TOML file, its axes as texts by their full names.

    What it reads is found from anywhere; what it writes stays as it is in the file's own folder.
    Raises SweepError naming the file and the entry at fault.
    """
    file = read_toml(path, SweepFile, SweepError, "sweep")
    options = dict(file.options)
    for name, value in options.items():
        if isinstance(value, str) and Path(value).suffix and isfile(path.parent / value):
            options[name] = str(path.parent / value)
    return replace(
        file,
        workload=str(beside(path, file.workload)),
        axes=_axes(file.axes),
        options=options,
    )


def _axes(table: Values, prefix: str = "") -> dict[str, str]:
    """Axes by full names: `fabric.bandwidth = ...` is a table in TOML."""
    axes: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            axes |= _axes(value, f"{prefix}{name}.")
        else:
            axes[prefix + name] = _text(value)
    return axes


def _text(value: Any) -> str:
    """A range as the flag would say it."""
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list) else [value]
    shown = (("off", "on")[item] if isinstance(item, bool) else str(item) for item in items)
    return "".join(f"{each};" for each in shown)
