"""One collective by itself: times and bandwidths by size and algorithm, and the links it uses."""

from collections.abc import Iterator
from math import isfinite

from stepsim.base.structs import unbounded
from stepsim.base.units import format_size_bytes
from stepsim.network.one_collective import CollectiveDocument, ProbeRow
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


def collective_shown(priced: CollectiveDocument) -> Iterator[Shown]:
    """A collective by size and algorithm; the links that the largest size uses."""
    ranks = f"{priced.kind} over {len(priced.ranks)} ranks"
    yield ("topology", priced.topology), ("collective", ranks)
    units, probes = "bandwidths in GB/s, as nccl-tests counts", priced.algorithms
    if len(probes[0].rows) == 1:
        yield table_of(units, [probe.rows[0] for probe in probes], _SIZES)
    else:
        yield from (table_of(f"{each.algorithm}; {units}", each.rows, _SIZES) for each in probes)
    yield from map(_links, {probe.rows[-1].algorithm: probe.rows[-1] for probe in probes}.values())


def _links(row: ProbeRow) -> Table:
    size = format_size_bytes(row.size_bytes)
    return table_of(f"links of {row.algorithm}, {size}", row.links, _LINKS)
