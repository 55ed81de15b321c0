"""Prices of a collective as JSON.

Keys: `schema_version`, `topology`, `kind`, `ranks`, and `algorithms`, one entry per algorithm that
was asked for: `algorithm` and `rows` with `size_bytes`, `time_ps`, `latency_ps`, `algbw` and
`busbw` (bytes/s, null where no time passes), `algorithm` (the one used) and `links` (bytes per
class of links).
"""

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from stepsim.base.json_text import json_text
from stepsim.network.one_collective import Probe, ProbeRow
from stepsim.results.report import SCHEMA_VERSION


def probes_json(probes: Sequence[Probe]) -> bytes:
    """Probes of one collective with several algorithms as UTF-8 JSON, ending with a newline."""
    first = probes[0]
    document = {
        "schema_version": SCHEMA_VERSION,
        "topology": first.topology,
        "kind": first.kind,
        "ranks": list(first.ranks),
        "algorithms": [
            {"algorithm": probe.algorithm, "rows": [_row(row) for row in probe.rows]}
            for probe in probes
        ],
    }
    return json_text(document)


def _row(row: ProbeRow) -> dict[str, Any]:
    data = asdict(row)
    return data | {
        name: data[name] if isfinite(data[name]) else None for name in ("algbw", "busbw")
    }
