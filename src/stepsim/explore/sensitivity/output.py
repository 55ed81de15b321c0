"""Sensitivities and noise as tables."""

from rich.console import Console
from rich.table import Table

from stepsim.base.units import format_time_ps
from stepsim.explore.noise.draws import NoiseResult
from stepsim.explore.sensitivity.analysis import Sensitivity
from stepsim.explore.sensitivity.names import describe, show_value

_PERCENTILES = (50, 95, 99)


def print_sensitivity(console: Console, found: Sensitivity) -> None:
    """What one per cent of each parameter is worth."""
    console.print(f"step time  {format_time_ps(found.step_time_ps)}")
    table = _table("change", "of", "saves", "derivative")
    for slope in found.slopes:
        mark = " *" if slope.one_sided else ""
        share = f"{100 * slope.elasticity:+.3f} %{mark}"
        table.add_row(describe(slope), show_value(slope), f"{100 * slope.gain:.3f} %", share)
    console.print("\nwhat one per cent is worth", style="bold")
    console.print(table)
    console.print("derivative: of the step time, per 100 % of the parameter, on the critical path")
    for slope in found.slopes:
        if slope.one_sided:
            below, above = (
                each * slope.value / found.step_time_ps for each in (slope.below, slope.above)
            )
            console.print(
                f"* {describe(slope)}: the critical path changes; {100 * below:+.3f} % below, "
                f"{100 * above:+.3f} % above",
                soft_wrap=True,
            )
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)


def print_noise(console: Console, found: NoiseResult) -> None:
    """The distribution of step times beside the planned one."""
    rows = [("without noise", float(found.planned_ps)), ("mean", found.mean_ps)]
    rows += [(f"p{percent}", found.percentile_ps(percent)) for percent in _PERCENTILES]
    table = _table("step time", "", "over planned")
    for name, time in rows:
        over = f"{time / found.planned_ps - 1:+.2%}" if found.planned_ps else ""
        table.add_row(name, format_time_ps(time), over)
    console.print(f"{len(found.step_time_ps)} samples, seed {found.seed}", style="bold")
    console.print(table)
    if not found.every_rank:
        console.print(
            "note: one draw per class of ranks that behave alike, for the job is too large: a "
            "lower bound, since the slowest of many ranks is slower than one",
            soft_wrap=True,
        )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    return table
