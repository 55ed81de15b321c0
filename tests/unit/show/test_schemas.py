"""JSON Schemas: what is shipped, written and shown fits them, and what is wrong does not."""

import json
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from helpers import Run
from hypothesis import given, strategies as st
from pages import ROOT, blocks
from profiles import made_rows, write_rows

import stepsim
from stepsim.base.errors import StepsimError, UnitError
from stepsim.base.structs import Document
from stepsim.base.units import (
    BANDWIDTH_PATTERN,
    SIZE_PATTERN,
    TIME_PATTERN,
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
)
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.models.launch import write_plan
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.views.schemas import FORMATS, json_schema

jsonschema = pytest.importorskip("jsonschema")

WRITTEN = {
    "result": ("simulate {moe} --json -", "simulate {leaf} --json -", "simulate {trace} --json -"),
    "comparison": ("compare {moe} --schedules 1f1b,zb-h1,dualpipe-v --json -",),
    "against": ("simulate {small} --against {own} --json -",),
    "collective": ("collective --kind all_reduce --size 1MiB..4MiB:x2 --ranks 0-15 --json -",),
    "topology-numbers": ("inspect hgx-h100 --json -", "inspect ideal --json -"),
    "sensitivity": ("simulate {moe} --sensitivity --json -",),
    "sweep-result": ("sweep {moe} --set schedule=1f1b,dualpipe-v --db {db} --breakdown --json -",),
    "batches": (
        "simulate llama-2-7b -t hgx-h100 --npus 8 --tp 2 --sequence 512 --microbatches 1 "
        "--lengths fixed(length=100) --steps 2 --packers padded,first-fit --json -",
    ),
    "batch-sweep": (
        "sweep llama-2-7b -t hgx-h100 --npus 8 --sequence 512 --microbatches 1 --steps 2 "
        "--lengths fixed(length=100) --set packer=padded,first-fit --set tp=1,2 --json -",
    ),
    "noise": ("noise {small} --samples 4 --task 0.1 --json -",),
    "noise-sweep": (
        "noise {small} --samples 2 --set microbatches=2,3 --schedule interleaved:2 --json -",
    ),
    "list": ("list --json -", "list models --json -"),
    "run": ("inspect {trace} --json -",),
    "log": ("inspect {leaf} --json -",),
    "validation": ("validate {trace} {table} --json -",),
    "explanation": (
        "explain {steps} --config llama-2-7b --npus 8 --tp 2 --global-batch 8 --json -",
    ),
    "published": ("validate {published} --json -",),
    "profile": ("inspect {profile} --json -",),
    "improvements": ("improve {profile} --json -",),
    "plan": (
        "plan llama-3.1-8b {gpus} --fix tp=2,4 --fix mbs=1 --runs 2 --json -",
        "plan llama-3.1-8b {gpus} --fix tp=2,4 --fix mbs=1 --runs 2 --json - "
        "--lengths fixed(length=100) --steps 2",
    ),
    "budget": ("plan {plan} --check --max-step 3600s --json -",),
}
"""Commands that write every document with `--json`."""


@cache
def check(name: str) -> Callable[[Any], object]:
    """Raises where a document does not fit: compiled, as it is asked often."""
    compiled: Callable[[Any], object] = fastjsonschema.compile(json_schema(name))
    return compiled


def errors(name: str, document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema(name))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(document)]


@pytest.fixture
def files(tmp_path: Path, workloads: Path) -> dict[str, str]:
    """Inputs of the commands in WRITTEN."""
    table = tmp_path / "steps.csv"
    table.write_text(f"workload,measured_s,npus,pp\n{workloads / 'gpt_tp4.txt'},1.5,32,4\n")
    published = tmp_path / "published.csv"
    published.write_text(
        "id,source,model,gpu,n_gpus,seq,gbs,mbs,tp,pp,dp,precision,hidden,layers,heads,kv_heads,"
        "head_dim,ffn,act,vocab,step_s,framework\n"
        "1,made,small,H100,8,2048,64,2,2,2,2,bf16,2048,8,16,16,128,8192,gelu,32000,0.5,nemo\n"
    )
    steps = tmp_path / "steps.log"
    logged = (f"steps: {n} loss: 8.1 iter time (s): 2.{n} samples/sec: 4\n" for n in (1, 2, 3))
    steps.write_text("".join(logged))
    rows = made_rows(stages=2, replicas=2, microbatches=4, steps=2)
    plan = tmp_path / "plan.toml"
    options = {"npus": "8", "tp": "4", "global_batch": "8", "sequence": "2048"}
    write_plan(plan, "llama-3.1-8b", "hgx-h100", options)
    step = stepsim.simulate(workloads / "gpt_tp4.txt", npus=16, pp=2)
    first = profile_of_step(step.timeline, source="made", ranks=[0])
    write_kineto(first, tmp_path / "own")
    return {
        "own": str(tmp_path / "own"),
        "steps": str(steps),
        "db": str(tmp_path / "sweep.sqlite"),
        "moe": str(workloads / "moe_128.txt"),
        "small": f"{workloads / 'gpt_tp4.txt'} --npus 16 --pp 2",
        "leaf": str(workloads / "measured" / "llama_pp8_a40.txt"),
        "trace": str(workloads / "measured" / "megatron_moe_rank0.txt"),
        "table": str(table),
        "published": str(published),
        "gpus": "--gpus 8 --global-batch 16 --seq 4096 -t hgx-h100",
        "plan": str(plan),
        "profile": str(write_rows(rows, tmp_path / "job.parquet")),
    }


@pytest.mark.parametrize("name", FORMATS)
def test_schemas_are_valid_and_name_their_fields(name: str) -> None:
    document = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    for title, definition in document["$defs"].items():
        assert definition["description"].strip(), title
        assert "   " not in definition["description"]


@pytest.mark.parametrize(
    ("name", "command"),
    [(name, command) for name, commands in WRITTEN.items() for command in commands],
)
def test_what_is_written_fits_and_is_read_again(
    run: Run, files: dict[str, str], name: str, command: str
) -> None:
    """Read and written once more it is the same, and what a later stepsim adds is ignored."""
    code, out, err = run(*command.format(**files).split())
    assert code == 0, err
    document = json.loads(out)
    check(name)(document)
    with pytest.raises(fastjsonschema.JsonSchemaException, match="unknown"):
        check(name)(document | {"unknown": 1})
    _, kind = FORMATS[name]
    for key in json_schema(name)["$defs"][kind.__name__]["required"]:
        with pytest.raises(fastjsonschema.JsonSchemaException, match=key):
            check(name)({each: document[each] for each in document if each != key})
    assert issubclass(kind, Document)
    found = kind.from_plain(document, "stdout")
    assert json.loads(found.to_json()) == document
    assert kind.from_plain(document | {"later": {"unknown": 1}}, "stdout") == found


@pytest.mark.parametrize("name", WRITTEN)
def test_a_document_of_another_version_or_without_a_key_is_refused(name: str) -> None:
    _, kind = FORMATS[name]
    assert issubclass(kind, Document)
    with pytest.raises(StepsimError, match=r"^x: "):
        kind.from_plain({"schema_version": 2}, "x")
    with pytest.raises(StepsimError, match=r"^x: "):
        kind.from_plain({"schema_version": 1}, "x")


def test_every_document_has_a_format() -> None:
    """A new document needs a line in FORMATS, and one in WRITTEN."""
    shared = {"Document", "Report", "CandidateDocument"}
    sources = [path.read_text() for path in (ROOT / "src" / "stepsim").rglob("*.py")]
    pattern = r"class (\w+)\((?:Document|Report)[,)]"
    found = {name for text in sources for name in re.findall(pattern, text)} - shared
    assert found == {FORMATS[name][1].__name__ for name in WRITTEN}


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_topologies_fit(path: Path) -> None:
    assert errors("topology", tomllib.loads(path.read_text())) == []


def examples(page: str) -> list[tuple[str, Any]]:
    """TOML documents of a page, with the format each belongs to."""
    formats = {"axes": "sweep", "run": "step-table", "traces": "calibration", "source": "topology"}
    found = []
    for block in blocks(ROOT / "docs" / page):
        if block.language == "toml":
            document = tomllib.loads(block.text)
            found += [(formats[key], document) for key in formats if key in document][:1]
    return found


def test_examples_of_the_formats_page_fit() -> None:
    found = examples("formats.md")
    assert {name for name, _ in found} >= {"topology", "sweep", "calibration"}
    for name, document in found:
        assert errors(name, document) == []


@pytest.mark.parametrize(
    ("name", "document", "place"),
    [
        ("topology", {"name": "a", "source": "b", "dimensions": []}, "dimensions"),
        ("topology", {"name": "a", "source": "b", "collective": {"launch_latency": "5"}}, "5"),
        ("sweep", {"workload": "a.txt"}, "axes"),
        ("calibration", {"schema_version": 1, "sources": [], "host_overhead": {}}, "host_overhead"),
        ("step-table", {"run": [{"workload": "a.txt", "measured_s": "long"}]}, "long"),
    ],
)
def test_wrong_documents_do_not_fit(name: str, document: Any, place: str) -> None:
    found = errors(name, document)
    assert len(found) == 1
    assert place in found[0]


QUANTITIES: list[tuple[str, Callable[[str], float]]] = [
    (TIME_PATTERN, parse_time_ps),
    (SIZE_PATTERN, parse_size_bytes),
    (BANDWIDTH_PATTERN, parse_bandwidth),
]


@given(
    number=st.sampled_from(["1", "0.5", ".5", "5.", "1e3", "+2", "2E-1", "1_0", "", "x"]),
    space=st.sampled_from(["", " ", "\t"]),
    unit=st.sampled_from(["", "s", "us", "B", "KiB", "GB/s", "Gbps", "gbps", "inf", "GB/h"]),
)
def test_patterns_say_what_the_parsers_say(number: str, space: str, unit: str) -> None:
    text = number + space + unit
    for pattern, parse in QUANTITIES:
        try:
            parse(text)
            fits = True
        except UnitError:
            fits = False
        assert bool(re.search(pattern, text)) == fits


def test_the_command_prints_schemas(run: Run) -> None:
    code, out, _ = run("schema", "topology")
    assert (code, json.loads(out)) == (0, json_schema("topology"))
    code, out, _ = run("schema")
    assert [line.split()[0] for line in out.splitlines()] == list(FORMATS)
    code, out, err = run("schema", "yaml")
    assert (code, out) == (2, "")
    assert "'yaml': expected one of topology, sweep" in err


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(StepsimError, match="format is 'x'"):
        json_schema("x")
