"""Sensitivities and noise as tables and JSON."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from stepsim.base.json_text import json_text
from stepsim.base.units import format_time_ps
from stepsim.explore.noise.draws import NoiseResult
from stepsim.explore.sensitivity.analysis import Sensitivity
from stepsim.explore.sensitivity.names import describe, show_value
from stepsim.results.report import SCHEMA_VERSION

PERCENTILES = (50, 95, 99)


def sensitivity_json(found: Sensitivity) -> bytes:
    """UTF-8 JSON: step time and a list of slopes, each with its elasticity."""
    slopes = [
        {**msgspec.to_builtins(slope), "elasticity": found.elasticity(slope)}
        for slope in found.slopes
    ]
    document = {
        "schema_version": SCHEMA_VERSION,
        "workload": found.workload,
        "topology": found.topology,
        "schedule": found.schedule,
        "step_time_ps": found.step_time_ps,
        "slopes": slopes,
        "notes": found.notes,
        "warnings": found.warnings,
    }
    return _json(document)


def noise_json(found: NoiseResult) -> bytes:
    """UTF-8 JSON: the model, the distribution, and every sample in ps."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": msgspec.to_builtins(found.model),
        "seed": found.seed,
        "every_rank": found.every_rank,
        "planned_ps": found.planned_ps,
        "mean_ps": round(found.mean_ps),
        **{f"p{percent}_ps": round(found.percentile_ps(percent)) for percent in PERCENTILES},
        "step_time_ps": found.step_time_ps.tolist(),
        "warnings": found.warnings,
    }
    return _json(document)


def print_sensitivity(console: Console, found: Sensitivity) -> None:
    """What one per cent of each parameter is worth."""
    console.print(f"step time  {format_time_ps(found.step_time_ps)}")
    table = _table("change", "of", "saves", "derivative")
    for slope in found.slopes:
        mark = " *" if slope.one_sided else ""
        share = f"{100 * found.elasticity(slope):+.3f} %{mark}"
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
    rows += [(f"p{percent}", found.percentile_ps(percent)) for percent in PERCENTILES]
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


def _json(document: dict[str, Any]) -> bytes:
    return json_text(document)
