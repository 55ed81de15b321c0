"""JSON Schemas of the files that stepsim reads and writes, made from their types."""

from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any

import msgspec

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Document, Values, json_text, unbounded
from stepsim.base.units import (
    BANDWIDTH_PATTERN,
    SIZE_PATTERN,
    TIME_PATTERN,
    Quantity,
)
from stepsim.explain.against import Against
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.report import ResultDocument
from stepsim.explore.batches.draws import BatchDocument
from stepsim.explore.batches.sweeps import BatchSweepDocument
from stepsim.explore.noise.draws import NoiseDocument, NoiseSweepDocument
from stepsim.explore.plan.asked import PlanDocument
from stepsim.explore.plan.budget import BudgetDocument
from stepsim.explore.sensitivity import Sensitivity
from stepsim.files.catalog import CatalogDocument
from stepsim.files.models.launch import PlanFile
from stepsim.files.step_table import StepTable
from stepsim.files.sweep_document import SweepDocument
from stepsim.files.sweep_toml import SweepFile
from stepsim.files.topology.toml import TopologyFile
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.run_document import LogDocument, RunDocument
from stepsim.network.one_collective import CollectiveDocument
from stepsim.network.topology.inspection import TopologyNumbers
from stepsim.runs.explained import LogExplanation
from stepsim.runs.improve import Improvements
from stepsim.runs.published import PublishedDocument
from stepsim.runs.validate import Validation
from stepsim.step.compare import ComparisonDocument
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework

_WRITES: Mapping[str, Callable[[Any], str]] = {
    TIME_PATTERN: Quantity.TIME.text,
    SIZE_PATTERN: Quantity.SIZE.text,
    BANDWIDTH_PATTERN: Quantity.BANDWIDTH.text,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


FORMATS: Mapping[str, tuple[str, type]] = {
    "topology": ("a topology file, TOML", TopologyFile),
    "sweep": ("a sweep file, TOML", SweepFile),
    "calibration": ("a calibration file, TOML", Calibration),
    "step-table": ("a table of measured steps, TOML", StepTable),
    "device": ("a device file, TOML", Device),
    "framework": ("a framework file, TOML", Framework),
    "result": ("simulate --json", ResultDocument),
    "against": ("simulate --against --json", Against),
    "comparison": ("compare --json", ComparisonDocument),
    "collective": ("collective --json", CollectiveDocument),
    "topology-numbers": ("inspect --json", TopologyNumbers),
    "sensitivity": ("simulate --sensitivity --json", Sensitivity),
    "batches": ("simulate --lengths --json", BatchDocument),
    "batch-sweep": ("sweep --lengths --json", BatchSweepDocument),
    "sweep-result": ("sweep --json", SweepDocument),
    "noise": ("noise --json", NoiseDocument),
    "noise-sweep": ("noise --set ... --json", NoiseSweepDocument),
    "run": ("inspect --json of traces", RunDocument),
    "log": ("inspect --json of a log of leaf modules", LogDocument),
    "profile": ("inspect --json of a profile", ProfileDocument),
    "improvements": ("improve --json", Improvements),
    "validation": ("validate --json", Validation),
    "explanation": ("explain --json", LogExplanation),
    "published": ("validate --json of published steps of models", PublishedDocument),
    "plan": ("plan --json", PlanDocument),
    "budget": ("plan --check --json", BudgetDocument),
    "plan-file": ("a plan file, TOML", PlanFile),
    "list": ("list --json", CatalogDocument),
}
"""What a format is, and the type of its root."""


def json_schema(name: str) -> Values:
    """The JSON Schema (draft 2020-12) of a format; raises StepsimError for an unknown name."""
    if name not in FORMATS:
        raise StepsimError(f"format is {name!r}: expected one of {', '.join(FORMATS)}")
    what, kind = FORMATS[name]
    written = issubclass(kind, Document)
    others = kind.named if issubclass(kind, Document) else ()
    (root, *_), definitions = msgspec.json.schema_components(
        (kind, *others), ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        if "description" in definition:  # python -OO leaves docstrings out
            definition["description"] = cleandoc(definition["description"])
        if written and "properties" in definition:
            _as_written(definition)
        definition["title"] = definition["title"].lstrip("_")
    title = f"stepsim {name}: {what}"
    named = {definition["title"]: definition for definition in definitions.values()}
    whole = msgspec.json.encode({"$schema": _DIALECT, "title": title, **root, "$defs": named})
    plain: Values = _as_texts(msgspec.json.decode(whole.replace(b"#/$defs/_", b"#/$defs/")))
    return plain


def schema_json(name: str) -> bytes:
    """The JSON Schema of a format as UTF-8 JSON, ending with a newline; raises StepsimError."""
    return json_text(json_schema(name))


def _as_texts(schema: Any) -> Any:
    """A schema whose numbers with a unit are the texts that files have, see `base.fields`."""
    if isinstance(schema, list):
        return [_as_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") in _WRITES and schema.get("type") != "string":
        text = {"type": "string"}
        if "default" in schema:
            text["default"] = _WRITES[schema["pattern"]](unbounded(schema["default"]))
        return schema | text
    if schema.get("description") == "seconds":
        return schema | {"type": "number"}
    if isinstance(schema.get("unit"), float) and "default" in schema:
        return schema | {"default": schema["default"] / schema["unit"]}
    # which names keys may have is told by msgspec from 0.23 on
    return {name: _as_texts(each) for name, each in schema.items() if name != "propertyNames"}


def _as_written(definition: Values) -> None:
    """Keys that a reader may do without are always written, and no others."""
    found: dict[str, Values] = definition["properties"]
    absent = {key for key in found if "default" not in found[key]} - {*definition["required"]}
    definition["required"] = [key for key in found if key not in absent]
    definition["properties"] = {key: _one_type(field) for key, field in found.items()}
    definition["additionalProperties"] = False


def _one_type(field: Values) -> Values:
    """A field without a default; one that names a type says nothing else."""
    if "$ref" in field:
        return {"$ref": field["$ref"]}
    return {key: value for key, value in field.items() if key != "default"}
