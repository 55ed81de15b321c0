"""A comparison of schedules as JSON: one entry per candidate, valid or refused."""

from typing import Any

import msgspec

from stepsim.compare import Comparison, exposed_p2p_ps
from stepsim.formats.result_json import report_dict
from stepsim.report import SCHEMA_VERSION
from stepsim.simai_formula import SimaiTotals


def comparison_json(comparison: Comparison, simai: SimaiTotals | None = None) -> bytes:
    """UTF-8 JSON, ending with a newline; `ranks` are left out of the candidates' reports."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "candidates": [
            {"name": candidate.name, "valid": False, "refusal": candidate.refusal}
            if candidate.result is None
            else {
                "name": candidate.name,
                "valid": True,
                "speedup": comparison.speedup(candidate.result),
                "exposed_p2p_ps": exposed_p2p_ps(candidate.result),
                **{k: v for k, v in report_dict(candidate.result.report).items() if k != "ranks"},
            }
            for candidate in comparison.candidates
        ],
    }
    if simai:
        document["simai_formula"] = msgspec.to_builtins(simai)
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
