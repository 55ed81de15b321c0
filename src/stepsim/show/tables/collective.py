"""One collective by itself: times and bandwidths by size and algorithm, and the links it uses."""

from collections.abc import Iterator, Sequence
from math import isfinite

from stepsim.base.units import format_size_bytes
from stepsim.network.one_collective import Probe, ProbeRow
from stepsim.show.tables.model import (
    COUNT,
    LONG,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Column,
    Shown,
    Table,
)

_GB_PER_S = Column(write=lambda rate: f"{rate / 1e9:.2f}" if isfinite(rate) else "-")


def collective_shown(probes: Sequence[Probe]) -> Iterator[Shown]:
    """A collective by size and algorithm; the links that the largest size uses."""
    first = probes[0]
    ranks = f"{first.kind} over {len(first.ranks)} ranks"
    yield ("topology", first.topology), ("collective", ranks)
    units = "bandwidths in GB/s, as nccl-tests counts"
    if len(first.rows) == 1:
        yield _sizes(units, [probe.rows[0] for probe in probes])
    else:
        yield from (_sizes(f"{probe.algorithm}; {units}", probe.rows) for probe in probes)
    yield from map(_links, {probe.rows[-1].algorithm: probe.rows[-1] for probe in probes}.values())


def _sizes(caption: str, rows: Sequence[ProbeRow]) -> Table:
    return Table(
        caption=caption,
        columns={
            "size": SIZE,
            "time": TIME,
            "algbw": _GB_PER_S,
            "busbw": _GB_PER_S,
            "algorithm": LONG,
        },
        rows=tuple((r.size_bytes, r.time_ps, r.algbw, r.busbw, r.algorithm) for r in rows),
    )


def _links(row: ProbeRow) -> Table:
    return Table(
        caption=f"links of {row.algorithm}, {format_size_bytes(row.size_bytes)}",
        columns={
            "links": TEXT,
            "used": COUNT,
            "all bytes": SIZE,
            "busiest": TEXT,
            "its bytes": SIZE,
            "in use": SHARE,
        },
        rows=tuple(
            (
                link.name,
                link.links,
                link.total_bytes,
                link.busiest,
                link.busiest_bytes,
                link.utilisation,
            )
            for link in row.links
        ),
    )
