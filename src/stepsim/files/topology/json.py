"""The numbers of a topology as JSON.

Keys: `schema_version` and those of `stepsim.network.topology.inspection.TopologyInspection`;
`links` has an entry per class. Bandwidths are bytes/s, null where they are free; latencies are
picoseconds.
"""

from math import isfinite
from typing import Any

import msgspec

from stepsim.base.json_text import json_text
from stepsim.network.topology.inspection import LinkRow, TopologyInspection
from stepsim.results.report import SCHEMA_VERSION


def topology_json(seen: TopologyInspection) -> bytes:
    """An inspection as UTF-8 JSON, ending with a newline."""
    document = msgspec.to_builtins(seen) | {
        "schema_version": SCHEMA_VERSION,
        "injection_bandwidth": _bandwidth(seen.injection_bandwidth),
        "bisection_bandwidth": _bandwidth(seen.bisection_bandwidth),
        "links": [_link(row) for row in seen.links],
    }
    return json_text(document)


def _link(row: LinkRow) -> dict[str, Any]:
    link: dict[str, Any] = msgspec.to_builtins(row.link)
    return link | {"bandwidth": _bandwidth(row.link.bandwidth), "count": row.count}


def _bandwidth(value: float) -> float | None:
    return value if isfinite(value) else None
