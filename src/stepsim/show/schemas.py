"""JSON Schemas of the files that stepsim reads and writes, made from their types."""

from collections.abc import Callable, Mapping
from inspect import cleandoc
from types import MappingProxyType
from typing import Any

import msgspec

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Document, Noun, json_text, unbounded
from stepsim.base.units import (
    BANDWIDTH_PATTERN,
    SIZE_PATTERN,
    TIME_PATTERN,
    exact_size,
    exact_time,
    format_bandwidth,
)
from stepsim.explain.against import Against
from stepsim.explain.improve import ImprovementsDocument
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.report import ResultDocument
from stepsim.explore.batches.document import BatchDocument
from stepsim.explore.batches.sweeps import BatchSweepDocument
from stepsim.explore.noise.document import NoiseDocument, NoiseSweepDocument
from stepsim.explore.plan.budget import BudgetDocument
from stepsim.explore.plan.document import PlanDocument
from stepsim.explore.sensitivity.analysis import Sensitivity
from stepsim.explore.sweep.document import SweepDocument
from stepsim.files.catalog import CatalogDocument
from stepsim.files.models.launch import PlanFile
from stepsim.files.step_table import StepTable
from stepsim.files.sweep_toml import SweepFile
from stepsim.files.topology.tables import TopologyFile
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.run_document import LogDocument, RunDocument
from stepsim.network.one_collective import CollectiveDocument
from stepsim.network.topology.inspection import TopologyNumbers
from stepsim.runs.document import ValidationDocument
from stepsim.runs.explained import LogExplanation
from stepsim.runs.published import PublishedDocument
from stepsim.step.compare import ComparisonDocument
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework

_WRITES: Mapping[str, Callable[[Any], str]] = MappingProxyType(
    {TIME_PATTERN: exact_time, SIZE_PATTERN: exact_size, BANDWIDTH_PATTERN: format_bandwidth}
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Format(Noun):
    """A format: what it is, and the type of its root."""

    what: str
    root: type


FORMATS: Mapping[str, _Format] = MappingProxyType(
    {
        "topology": _Format(what="a topology file, TOML", root=TopologyFile),
        "sweep": _Format(what="a sweep file, TOML", root=SweepFile),
        "calibration": _Format(what="a calibration file, TOML", root=Calibration),
        "step-table": _Format(what="a table of measured steps, TOML", root=StepTable),
        "device": _Format(what="a device file, TOML", root=Device),
        "framework": _Format(what="a framework file, TOML", root=Framework),
        "result": _Format(what="simulate --json", root=ResultDocument),
        "against": _Format(what="simulate --against --json", root=Against),
        "comparison": _Format(what="compare --json", root=ComparisonDocument),
        "collective": _Format(what="collective --json", root=CollectiveDocument),
        "topology-numbers": _Format(what="inspect --json", root=TopologyNumbers),
        "sensitivity": _Format(what="simulate --sensitivity --json", root=Sensitivity),
        "batches": _Format(what="simulate --lengths --json", root=BatchDocument),
        "batch-sweep": _Format(what="sweep --lengths --json", root=BatchSweepDocument),
        "sweep-result": _Format(what="sweep --json", root=SweepDocument),
        "noise": _Format(what="noise --json", root=NoiseDocument),
        "noise-sweep": _Format(what="noise --set ... --json", root=NoiseSweepDocument),
        "run": _Format(what="inspect --json of traces", root=RunDocument),
        "log": _Format(what="inspect --json of a log of leaf modules", root=LogDocument),
        "profile": _Format(what="inspect --json of a profile", root=ProfileDocument),
        "improvements": _Format(what="improve --json", root=ImprovementsDocument),
        "validation": _Format(what="validate --json", root=ValidationDocument),
        "explanation": _Format(what="explain --json", root=LogExplanation),
        "published": _Format(
            what="validate --json of published steps of models", root=PublishedDocument
        ),
        "plan": _Format(what="plan --json", root=PlanDocument),
        "budget": _Format(what="plan --check --json", root=BudgetDocument),
        "plan-file": _Format(what="a plan file, TOML", root=PlanFile),
        "list": _Format(what="list --json", root=CatalogDocument),
    }
)


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
    """A schema whose numbers with a unit are the texts that files have, see `base.quantities`."""
    if isinstance(schema, list):
        return [_as_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") in _WRITES and schema.get("type") != "string":
        text = {"type": "string"}
        if "default" in schema:
            text["default"] = _WRITES[schema["pattern"]](unbounded(schema["default"]))
        return schema | text
    if isinstance(schema.get("unit"), float) and "default" in schema:
        return schema | {"default": schema["default"] / schema["unit"]}
    return {key: _as_texts(each) for key, each in schema.items()}


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
