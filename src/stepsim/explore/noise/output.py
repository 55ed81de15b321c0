"""Noise over axes as a table."""

from rich.console import Console
from rich.table import Table

from stepsim.base.units import format_time_ps
from stepsim.explore.noise.sweeps import NoiseSweep

_PERCENTILES = (5, 50, 95)


def print_noise_sweep(console: Console, found: NoiseSweep) -> None:
    """A line per scenario: step time without noise, and percentiles with it."""
    names = [axis.name for axis in found.grid.axes]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in ("without noise", *(f"p{percent}" for percent in _PERCENTILES)):
        table.add_column(name, justify="right", no_wrap=True)
    for i, each in enumerate(found.scenarios):
        values = found.grid.values(i)
        times = ["failed"]
        if not isinstance(each, str):
            times = [format_time_ps(each.planned_ps)]
            times += [format_time_ps(each.percentile_ps(percent)) for percent in _PERCENTILES]
        table.add_row(*(values[name] for name in names), *times)
    console.print(f"{found.samples} samples each, seed {found.seed}", style="bold")
    console.print(table)
    if any(not each.every_rank for each in found.results):
        console.print(
            "note: one draw per class of ranks that behave alike where jobs are too large: a lower "
            "bound, since the slowest of many ranks is slower than one",
            soft_wrap=True,
        )
    for i, each in enumerate(found.scenarios):
        if isinstance(each, str):
            shown = ", ".join(f"{name}={text}" for name, text in found.grid.values(i).items())
            console.print(f"failed, {shown}: {each}", soft_wrap=True)
            return
