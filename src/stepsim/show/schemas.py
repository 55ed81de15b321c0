"""JSON Schemas of the files that stepsim reads and writes, made from their types."""

from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any, NamedTuple

import msgspec

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Document, json_text, unbounded
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


class _Format(NamedTuple):
    """A format: what it is, and the type of its root."""

    what: str
    root: type


FORMATS: Mapping[str, _Format] = {
    "topology": _Format("a topology file, TOML", TopologyFile),
    "sweep": _Format("a sweep file, TOML", SweepFile),
    "calibration": _Format("a calibration file, TOML", Calibration),
    "step-table": _Format("a table of measured steps, TOML", StepTable),
    "device": _Format("a device file, TOML", Device),
    "framework": _Format("a framework file, TOML", Framework),
    "result": _Format("simulate --json", ResultDocument),
    "against": _Format("simulate --against --json", Against),
    "comparison": _Format("compare --json", ComparisonDocument),
    "collective": _Format("collective --json", CollectiveDocument),
    "topology-numbers": _Format("inspect --json", TopologyNumbers),
    "sensitivity": _Format("simulate --sensitivity --json", Sensitivity),
    "batches": _Format("simulate --lengths --json", BatchDocument),
    "batch-sweep": _Format("sweep --lengths --json", BatchSweepDocument),
    "sweep-result": _Format("sweep --json", SweepDocument),
    "noise": _Format("noise --json", NoiseDocument),
    "noise-sweep": _Format("noise --set ... --json", NoiseSweepDocument),
    "run": _Format("inspect --json of traces", RunDocument),
    "log": _Format("inspect --json of a log of leaf modules", LogDocument),
    "profile": _Format("inspect --json of a profile", ProfileDocument),
    "improvements": _Format("improve --json", Improvements),
    "validation": _Format("validate --json", Validation),
    "explanation": _Format("explain --json", LogExplanation),
    "published": _Format("validate --json of published steps of models", PublishedDocument),
    "plan": _Format("plan --json", PlanDocument),
    "budget": _Format("plan --check --json", BudgetDocument),
    "plan-file": _Format("a plan file, TOML", PlanFile),
    "list": _Format("list --json", CatalogDocument),
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a format; raises StepsimError for an unknown name."""
    if name not in FORMATS:
        raise StepsimError(f"format is {name!r}: expected one of {', '.join(FORMATS)}")
    form = FORMATS[name]
    written = issubclass(form.root, Document)
    others = form.root.named if issubclass(form.root, Document) else ()
    (root, *_), definitions = msgspec.json.schema_components(
        (form.root, *others), ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        if "description" in definition:  # python -OO leaves docstrings out
            definition["description"] = cleandoc(definition["description"])
        if written and "properties" in definition:
            _as_written(definition)
        definition["title"] = definition["title"].lstrip("_")
    title = f"stepsim {name}: {form.what}"
    named = {definition["title"]: definition for definition in definitions.values()}
    whole = msgspec.json.encode({"$schema": _DIALECT, "title": title, **root, "$defs": named})
    plain: dict[str, Any] = _as_texts(msgspec.json.decode(whole.replace(b"#/$defs/_", b"#/$defs/")))
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


def _as_written(definition: dict[str, Any]) -> None:
    """Keys that a reader may do without are always written, and no others."""
    found: dict[str, dict[str, Any]] = definition["properties"]
    absent = {key for key in found if "default" not in found[key]} - {*definition["required"]}
    definition["required"] = [key for key in found if key not in absent]
    definition["properties"] = {key: _one_type(field) for key, field in found.items()}
    definition["additionalProperties"] = False


def _one_type(field: dict[str, Any]) -> dict[str, Any]:
    """A field without a default; one that names a type says nothing else."""
    if "$ref" in field:
        return {"$ref": field["$ref"]}
    return {key: value for key, value in field.items() if key != "default"}
