"""One collective by itself: times and bandwidths by size and algorithm, and the links it uses."""

from collections.abc import Iterator, Sequence
from math import isfinite

from stepsim.base.structs import unbounded
from stepsim.base.units import format_size_bytes
from stepsim.network.one_collective import Probe, ProbeRow
from stepsim.show.tables.model import (
    Column,
    Shown,
    Table,
    paths,
    table_of,
)

_GB_PER_S = Column(write=lambda rate: f"{rate / 1e9:.2f}" if isfinite(rate) else "-")
_SIZES = paths(
    "size_bytes, time_ps, algbw, busbw, algorithm",
    {
        "algbw": _GB_PER_S.of(lambda row: unbounded(row.algbw)),
        "busbw": _GB_PER_S.of(lambda row: unbounded(row.busbw)),
    },
)
_LINKS = paths(
    "links = name, used = links, all bytes = total_bytes, busiest, its bytes = busiest_bytes, "
    "in use = utilisation"
)


def collective_shown(probes: Sequence[Probe]) -> Iterator[Shown]:
    """A collective by size and algorithm; the links that the largest size uses."""
    first = probes[0]
    ranks = f"{first.kind} over {len(first.ranks)} ranks"
    yield ("topology", first.topology), ("collective", ranks)
    units = "bandwidths in GB/s, as nccl-tests counts"
    if len(first.rows) == 1:
        yield table_of(units, [probe.rows[0] for probe in probes], _SIZES)
    else:
        yield from (table_of(f"{each.algorithm}; {units}", each.rows, _SIZES) for each in probes)
    yield from map(_links, {probe.rows[-1].algorithm: probe.rows[-1] for probe in probes}.values())


def _links(row: ProbeRow) -> Table:
    size = format_size_bytes(row.size_bytes)
    return table_of(f"links of {row.algorithm}, {size}", row.links, _LINKS)
