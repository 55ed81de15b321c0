"""The formats with a JSON Schema, by name, and the schemas, made from the types."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import cleandoc
from types import MappingProxyType
from typing import Any

import msgspec

from stepsim.base.errors import StepsimError
from stepsim.base.json_text import json_text
from stepsim.files.step_table import StepTable
from stepsim.files.sweep_toml import SweepFile
from stepsim.files.topology.tables import TopologyFile
from stepsim.files.traces.calibration_toml import CalibrationFile
from stepsim.show.schemas import documents, measured

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format: what it is, the type of its root, and types that only its schema names."""

    what: str
    root: type
    others: tuple[type, ...] = ()


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "topology": Format(what="a topology file, TOML", root=TopologyFile),
        "sweep": Format(what="a sweep file, TOML", root=SweepFile),
        "calibration": Format(what="a calibration file, TOML", root=CalibrationFile),
        "step-table": Format(what="a table of measured steps, TOML", root=StepTable),
        "result": Format(what="simulate --json", root=documents.Result),
        "comparison": Format(
            what="compare --json",
            root=documents.Comparison,
            others=(documents.Candidate, documents.RefusedCandidate),
        ),
        "collective": Format(what="collective --json", root=documents.Collective),
        "topology-numbers": Format(what="inspect --json", root=documents.TopologyNumbers),
        "sensitivity": Format(what="sensitivity --json", root=documents.Sensitivity),
        "noise": Format(what="noise --json", root=documents.Noise),
        "noise-sweep": Format(what="noise --set ... --json", root=documents.NoiseSweep),
        "run": Format(what="inspect --json of traces", root=measured.TracedRun),
        "log": Format(what="inspect --json of a log of leaf modules", root=measured.LoggedRun),
        "validation": Format(what="validate --json", root=measured.Validation),
        "doctor": Format(what="doctor --json", root=documents.Diagnosis),
        "collective-fit": Format(what="calibrate nccl --json", root=measured.CollectiveFit),
    }
)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a format; raises StepsimError for an unknown name."""
    if name not in FORMATS:
        raise StepsimError(f"format is {name!r}: expected one of {', '.join(FORMATS)}")
    form = FORMATS[name]
    (root, *_), definitions = msgspec.json.schema_components(
        (form.root, *form.others), ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        definition["description"] = cleandoc(definition["description"])
    title = f"stepsim {name}: {form.what}"
    return {"$schema": DIALECT, "title": title, **root, "$defs": definitions}


def schema_json(name: str) -> bytes:
    """The JSON Schema of a format as UTF-8 JSON, ending with a newline; raises StepsimError."""
    return json_text(schema(name))
