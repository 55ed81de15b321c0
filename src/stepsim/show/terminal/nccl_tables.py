"""What `stepsim calibrate nccl` prints: links, curves, and the fit's error for every size."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from rich.console import Console

from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.measured.calibration.calibration import Fitted
from stepsim.measured.calibration.curves import CurveFit, FitRow
from stepsim.measured.calibration.nccl import MachineFit, NcclFit
from stepsim.show.terminal.tables import print_table, table_of

LARGE_BYTES = 16 << 20
"""From here on a fit's error is shown by itself: what counts in training."""


def print_fit(console: Console, fit: NcclFit, *, every_size: bool) -> None:
    """Machine by machine: links, curves, errors; at the end what was left out."""
    for machine in fit.machines:
        title = machine.machine or fit.source
        console.print(f"{title}: nodes of {machine.node_size}", style="bold", soft_wrap=True)
        _print_links(console, machine)
        _print_curves(console, machine)
        for name, reason in machine.unidentified:
            console.print(f"not identified: {name}: {reason}", soft_wrap=True)
        for curve in machine.curves:
            if curve.regimes:
                _print_errors(console, curve, every_size=every_size)
        console.print()
    console.print(f"outliers left out: {len(fit.outliers)}", style="bold")
    for outlier in fit.outliers:
        console.print(str(outlier), soft_wrap=True)


def large_errors(fit: CurveFit) -> Sequence[float]:
    """Relative distances of the sizes from 16 MiB on."""
    return [abs(row.error) for row in fit.rows() if row.size_bytes >= LARGE_BYTES]


def _print_links(console: Console, machine: MachineFit) -> None:
    """A row per number; `off by` is the median distance of the groups it comes from."""
    table = table_of("links and latencies", "", "value", "off by", "groups", "by")
    for capacity in machine.capacities:
        group = f"{capacity.kind} {capacity.ranks}/{capacity.nodes}"
        value, spread = format_bandwidth(capacity.bandwidth), f"{capacity.residual:.1%}"
        table.add_row(capacity.placement, value, spread, str(capacity.samples), group)
    for each in machine.latencies:
        parts: tuple[tuple[str, Fitted | None, str], ...] = (
            ("whole", each.together, ""),
            ("launch", each.launch, ""),
            ("node step", each.node_step, ""),
            ("fabric step", each.fabric_step, each.pattern),
        )
        for name, part, note in parts:
            if part:
                value, spread = format_time_ps(part.value), format_time_ps(part.residual)
                table.add_row(f"{each.regime} {name}", value, spread, str(part.samples), note)
    print_table(console, table)


def _print_curves(console: Console, machine: MachineFit) -> None:
    columns = ("collective", "ranks", "nodes", "sizes", "lines", "busbw", "error", "16 MiB on")
    table = table_of("curves; errors are medians", *columns)
    for fit in machine.curves:
        curve, errors, large = fit.curve, [abs(r.error) for r in fit.rows()], large_errors(fit)
        table.add_row(
            curve.kind,
            str(curve.ranks),
            str(curve.nodes),
            str(len(curve.size_bytes)),
            str(len(fit.regimes)),
            format_bandwidth(fit.bus_bandwidth) if fit.bus_bandwidth else "",
            f"{np.median(errors):.1%}" if errors else "",
            f"{np.median(large):.1%}" if large else "",
        )
    print_table(console, table)


def _print_errors(console: Console, fit: CurveFit, *, every_size: bool) -> None:
    """A row per size, or per power of two with the median and the largest error in it."""
    columns = ("size", "sizes", "measured", "fitted", "error", "largest", "busbw", "efficiency")
    table = table_of(fit.curve.label, *columns)
    for rows in _groups(fit, every_size=every_size):
        errors = np.array([row.error for row in rows])
        speed = float(np.median([row.bus_bandwidth for row in rows]))
        table.add_row(
            format_size_bytes(rows[0].size_bytes),
            str(len(rows)),
            format_time_ps(rows[0].measured_ps),
            format_time_ps(rows[0].fitted_ps),
            f"{np.median(errors):+.1%}",
            f"{errors[np.argmax(np.abs(errors))]:+.1%}",
            format_bandwidth(speed) if speed else "",
            f"{speed / fit.bus_bandwidth:.0%}" if fit.bus_bandwidth else "",
        )
    print_table(console, table)


def _groups(fit: CurveFit, *, every_size: bool) -> Iterator[list[FitRow]]:
    for _, rows in groupby(
        fit.rows(), lambda row: row.size_bytes if every_size else row.size_bytes.bit_length()
    ):
        yield list(rows)
