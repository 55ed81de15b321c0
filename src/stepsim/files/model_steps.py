"""Tables of measured steps of published models: CSV, a row per run with shape, plan and time."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from stepsim.base.errors import StepsimError, TraceError, bad_value, member
from stepsim.base.structs import Names, Noun, replace, shipped
from stepsim.files.accelerators import names_of_files, read_device, read_framework
from stepsim.files.load import public_names, read_model
from stepsim.files.models.fields import MOST_LAYERS
from stepsim.files.reading import csv_rows, first_bytes, positive_number, read_text
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    Layer,
    LinearBlock,
)
from stepsim.workload.model.choices import (
    AttentionKernel,
    ExpertDispatch,
    GraphScope,
    Precision,
    Recompute,
    RecomputeModule,
)
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.framework import Framework, Recipe
from stepsim.workload.model.held import layout_of_costs
from stepsim.workload.model.layout import LayerLayout, counted_layout, even_or_ends, parse_layout
from stepsim.workload.plan import Plan

_SAMPLES = 8
"""Samples that fill a packed sequence: a guess, for no source says their lengths."""

_BITS = 8
_T = TypeVar("_T")
_Name = TypeVar("_Name", bound=StrEnum)


class _Words(Noun):
    """What rows say in words, as `model_steps.toml` has it."""

    columns: Names
    pattern: dict[str, str]
    recompute: dict[str, Recompute]
    node_gbps: dict[str, int]


def _words() -> _Words:
    return shipped(__file__, "model_steps.toml", _Words)


def _member(row: Mapping[str, str], column: str, kind: type[_Name]) -> _Name:
    return member(kind, row[column], f"run: {column}", TraceError)


def _match(pattern: str, text: str) -> re.Match[str] | None:
    """What a pattern of a name finds in a text."""
    return re.search(_words().pattern[pattern], text)


def _noted(row: Mapping[str, str], pattern: str) -> re.Match[str] | None:
    """What a pattern of a name finds in the note of a row."""
    return _match(pattern, row["note"])


class PublishedStep(Noun):
    """One published run: its model, plan, machine and framework by name, and what was measured.

    `name` is the run's in its table, `model` what its `source` calls the model.
    `measured_s` is None where the source gives no time, `memory_gib` where it gives no memory.
    `node_bandwidth` are bytes/s that a node sends where the source says so. `context` is the
    context parallelism where it is another library's than the framework's. `is_complete` rows state
    the whole layout; those that `ran_out` of memory have no time. `release` is the framework's.
    """

    name: str
    source: str
    model: str
    architecture: Architecture
    plan: Plan
    device: str
    framework: str
    npus_per_node: int
    measured_s: float | None
    memory_gib: float | None = None
    node_bandwidth: float | None = None
    context: ContextParallel | None = None
    is_complete: bool = True
    ran_out: bool = False
    release: str | None = None

    def error(self, predicted_s: float) -> float:
        """A prediction over the measured seconds, minus 1; only of runs with a time."""
        assert self.measured_s is not None
        return predicted_s / self.measured_s - 1


def is_published_steps(path: Path) -> bool:
    """Whether a file is a CSV of measured steps of models, by its header."""
    if path.suffix != ".csv":
        return False
    header = first_bytes(path, 4096).split(b"\n", 1)[0].decode(errors="replace")
    return set(_words().columns) <= set(header.strip().split(","))


def read_published_steps(path: Path) -> tuple[tuple[PublishedStep, ...], Names]:
    """The rows of a table, and a warning for each that is left out: it says why.

    Sources write down what others leave open, so that a cell nobody can read is no reason to drop
    the table. Raises TraceError where a column is missing or no row can be read.
    """
    text = read_text(path, TraceError, "table of measured steps", "CSV")
    found, warnings = [], []
    for number, row in enumerate(csv_rows(path, text, TraceError), start=2):
        missing = [name for name in _words().columns if row.get(name) is None]
        if missing:
            raise TraceError(f"{path}: row {number}: no column {missing[0]}")
        try:
            found.append(_step(defaultdict(str, {name: row[name] or "" for name in row})))
        except StepsimError as error:
            warnings.append(f"{path.name}: row {number} is left out: {error}")
    if warnings and not found:
        raise TraceError(f"{path}: no row can be read: {warnings[0]}")
    return tuple(found), tuple(warnings)


def _step(row: Mapping[str, str]) -> PublishedStep:
    if _noted(row, "no_shape"):
        raise TraceError(f"run {row['id']}: the shape of {row['model']} is not known")
    architecture = _architecture(row)
    per_node = _count(row, "gpn", 8, least=1)
    ran_out = any(_match("out", row[name]) for name in ("step_s", "mem_gib", "note"))
    return PublishedStep(
        name=row["id"],
        source=row["source"],
        model=row["model"],
        architecture=architecture,
        plan=_plan(row, architecture),
        device=row["gpu"],
        framework=_framework(row),
        npus_per_node=per_node,
        measured_s=None if ran_out else _number(row, "step_s"),
        memory_gib=None if ran_out else _number(row, "mem_gib"),
        node_bandwidth=_node_bandwidth(row),
        context=_context(row),
        is_complete=row.get("complete", "1") == "1",
        ran_out=ran_out,
        release=_named(row, "release"),
    )


def _named(row: Mapping[str, str], pattern: str) -> str | None:
    """What a note names by a pattern, such as a framework's release, 26.06.01."""
    found = _noted(row, pattern)
    return found.group(1) if found else None


def _architecture(row: Mapping[str, str]) -> Architecture:
    """The model of the row's columns, which say nothing of latent attention or shared experts.

    A model with experts that has the name and the shape of a public one is that one, with as many
    layers and words as the row says, and the layers that its note says predict further tokens.
    """
    own, mixes = _of_columns(row), bool(_noted(row, "mixes"))
    if not own.is_sparse and not mixes:
        return own
    public = _public_shape(row["model"])
    if public is None or not _alike(public, own) or public.mixes < mixes:
        if mixes:
            raise TraceError(f"run {row['id']}: no public model {row['model']} says its blocks")
        return own
    found = _resized(public, own, row["model"])
    again = int(_named(row, "predictions") or 0)
    return replace(found, prediction_layers=public.prediction_layers[:1] * again)


def _alike(public: Architecture, own: Architecture) -> bool:
    """Whether two models have the same width, heads and experts."""
    theirs, ours = _heads_and_experts(public), _heads_and_experts(own)
    return public.hidden == own.hidden and ours[0] <= theirs[0] and ours[1] == theirs[1]


def _heads_and_experts(model: Architecture) -> tuple[set[int], set[tuple[int, int]]]:
    """Numbers of heads of a model's layers, and of their experts, all and for a token."""
    kinds = model.layer_kinds()
    heads = {
        kind.attention.heads for kind in kinds if not isinstance(kind.attention, LinearBlock | None)
    }
    experts = {(k.mlp.experts, k.mlp.top_k) for k in kinds if isinstance(k.mlp, ExpertMlp)}
    return heads, experts


def _resized(public: Architecture, own: Architecture, name: str) -> Architecture:
    """The public model with the layers and the vocabulary of a row.

    A name that ends with `-d1` has one dense layer in front, whatever the public model has.
    """
    layers = public.layers
    told = _match("dense_layers", name)
    dense = [layer for layer in layers if not layer.is_sparse]
    if told and dense:
        sparse = next(layer for layer in layers if layer.is_sparse)
        first = int(told.group(1))
        layers = (dense[0],) * first + (sparse,) * (own.depth - first)
    layers += (layers[-1],) * (own.depth - len(layers))
    return replace(
        public,
        name=own.name,
        layers=layers[: own.depth],
        vocabulary=own.vocabulary,
        prediction_layers=(),
    )


def _public_shape(name: str) -> Architecture | None:
    """The public model that a row's name means, such as `qwen3-30b` qwen3-30b-a3b; None without."""
    wanted = _plain(re.sub(_words().pattern["dense_layers"], "", name))
    names = [each for each in public_names() if _plain(each).startswith(wanted)]
    exact = [each for each in names if _plain(each) == wanted]
    chosen = exact or names
    return read_model(chosen[0]).architecture if len(chosen) == 1 else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace(".", "")


def _of_columns(row: Mapping[str, str]) -> Architecture:
    act = _member(row, "act", Activation)
    attention = GroupedAttention(
        heads=_count(row, "heads"),
        kv_heads=_count(row, "kv_heads"),
        head_dim=_count(row, "head_dim"),
    )
    experts = _count(row, "experts", 0)
    width = _count(row, "ffn")
    mlp: DenseMlp | ExpertMlp = DenseMlp(width=width, activation=act)
    if experts:
        mlp = ExpertMlp(experts=experts, top_k=_count(row, "topk", 1), width=width, activation=act)
    return Architecture(
        name=row["model"],
        hidden=_count(row, "hidden"),
        layers=(Layer(attention=attention, mlp=mlp),) * _at_most("layers", _count(row, "layers")),
        vocabulary=_count(row, "vocab"),
        tied=bool(_match("tied", row["model"])),
        dropout=row["attn"] == AttentionKernel.UNFUSED,
    )


def _plan(row: Mapping[str, str], architecture: Architecture) -> Plan:
    recompute, modules, offload = _recomputed(row)
    sequence = _count(row, "seq")
    pp, chunks = _count(row, "pp", 1, least=1), max(_count(row, "vpp", 1), 1)
    stages = _at_most("pp x vpp", pp * chunks)
    framework = _known(read_framework, _framework(row))
    usual = _usual(row, framework, architecture) if framework else {}
    by_cost = pp > 1 and framework is not None and framework.balances_stages
    library = _named(row, "deepep") or ExpertDispatch.ALL_TO_ALL
    context = _context(row) or (framework.context if framework else ContextParallel())
    return Plan.of_batch(
        **{degree: _count(row, degree, 1) for degree in ("tp", "cp", "dp", "ep")},
        pp=pp,
        expert_tp=_count(row, "etp", 1) if architecture.is_sparse else None,
        chunks=chunks,
        microbatch_size=_count(row, "mbs"),
        global_batch=_count(row, "gbs"),
        sequence=sequence,
        precision=_member(row, "precision", Precision),
        sequence_parallel=row["sp"] == "1",
        zero=_count(row, "zero", 0),
        reshard=pp == 1 or _count(row, "zero", 0) < 3,  # torchtitan: dropped without a pipeline
        recompute=recompute,
        recompute_modules=modules,
        offload_layers=offload,
        layout=layout_of_costs(architecture, stages)
        if by_cost
        else _layout(row, architecture, stages),
        context=context.exchange,
        attention=_member(row, "attn", AttentionKernel) if row["attn"] else AttentionKernel.FLASH,
        dispatch=usual.get("dispatch", ExpertDispatch(library.lower())),
        tp_comm_overlap=row["tp_overlap"] == "1",
        dp_overlap=row["dp_overlap"] == "1",
        expert_overlap=bool(usual.get("expert_overlap") or _noted(row, "overlap")),
        shared_overlap=usual.get("shared_overlap", bool(_noted(row, "shared"))),
        delay_wgrad=usual.get("delay_wgrad", bool(_noted(row, "delayed"))),
        cuda_graph=usual.get("cuda_graph", row["cuda_graph"] == "1"),
        graph_scopes=_scopes(row),
        packed=sequence // _SAMPLES if _noted(row, "packed") else None,
        adapters=bool(_noted(row, "adapters")),
    )


def _usual(
    row: Mapping[str, str], framework: Framework, architecture: Architecture
) -> dict[str, Any]:
    """How tokens reach experts and what graphs hold, in the release, where the source is silent."""
    device = _known(read_device, row["gpu"])
    if device is None or not architecture.is_sparse or not _noted(row, "unprinted"):
        return {}
    precision, release = _member(row, "precision", Precision), _named(row, "release")
    job = framework.of_job(device.name, precision, sparse=True, release=release)
    usual: dict[str, Any] = dict(job.defaults_on(device.name, sparse=True, precision=precision))
    recipe = _recipe(row, architecture.name)
    if recipe and recipe.dispatch:
        usual["dispatch"] = recipe.dispatch
    return usual


def _layout(row: Mapping[str, str], architecture: Architecture, stages: int) -> LayerLayout:
    """The layout that a note says: letters, or layers of the first and last of two stages."""
    ahead = len(architecture.prediction_layers)
    letters, ends = _noted(row, "layout"), _noted(row, "ends")
    if letters:
        text = letters.group(1)
        return parse_layout(text if ahead else text.replace("m", ""))
    counts = [int(count) for count in ends.groups()] if ends else []
    if stages == 2 and sum(counts) == architecture.depth:
        return counted_layout(counts, ahead)
    return even_or_ends(architecture.depth, stages)


def _scopes(row: Mapping[str, str]) -> tuple[GraphScope, ...] | None:
    """The parts of layers that a note says CUDA graphs hold, all of a step if none; None unsaid."""
    found = _noted(row, "graph")
    if found is None:
        return None
    return _listed(found.group(2), GraphScope)


def _known(read: Callable[[str], _T], name: str) -> _T | None:
    """The device or framework of a name; None where stepsim does not know it."""
    try:
        return read(name)
    except StepsimError:
        return None


def _context(row: Mapping[str, str]) -> ContextParallel | None:
    """Transformer Engine's, where the note of a row says that attention is its."""
    return ContextParallel() if _noted(row, "engine") else None


def _recomputed(row: Mapping[str, str]) -> tuple[Recompute, tuple[RecomputeModule, ...], int]:
    """What is recomputed, which modules, and of how many layers activations leave the device.

    Modules stand in the note. Where the source does not print recomputation, the framework's public
    recipe of the model says it.
    """
    known, said = _words().recompute, row["recompute"]
    if said not in known:
        allowed = f"one of {', '.join(filter(None, known))}"
        raise TraceError(bad_value("run", "recompute", said, allowed))
    recompute = known[said]
    listed = _noted(row, "modules")
    if listed and recompute is not Recompute.FULL:
        return Recompute.NONE, _listed(listed.group(1), RecomputeModule), 0
    recipe = _recipe(row) if said == "unknown" else None
    if recipe is None:
        return recompute, (), 0
    return recompute, recipe.recompute_modules, recipe.offload_layers


def _recipe(row: Mapping[str, str], name: str | None = None) -> Recipe | None:
    """The public recipe that a row's framework has for its model, device, format and pipeline."""
    framework = _known(read_framework, row["framework"])
    device = _known(read_device, row["gpu"])
    if framework is None or device is None:
        return None
    degrees = {name: _count(row, name, 1) for name in ("tp", "pp")}
    chunks, zero = max(_count(row, "vpp", 1), 1), _count(row, "zero", 0)
    precision = _member(row, "precision", Precision)
    recipes = framework.recipes_of(name or row["model"], device.name, precision)
    return next((one for one in recipes if one.suits(**degrees, chunks=chunks, zero=zero)), None)


def _listed(text: str | None, kind: type[_Name]) -> tuple[_Name, ...]:
    """The names between the commas of a note, without those that nobody knows."""
    names = [name.strip() for name in (text or "").split(",")]
    return tuple(kind(name) for name in names if name in [*kind])


def _count(row: Mapping[str, str], column: str, default: int | None = None, least: int = 0) -> int:
    text = row[column]
    if not text and default is not None:
        return default
    if not text.isdecimal() or len(text) > 12 or int(text) < least:
        raise TraceError(bad_value("run", column, text, f"a whole number of at least {least}"))
    return int(text)


def _at_most(name: str, layers: int) -> int:
    """So many layers or stages; raises TraceError for more than a model may have."""
    if layers > MOST_LAYERS:
        raise TraceError(bad_value("run", name, layers, f"at most {MOST_LAYERS}"))
    return layers


def _number(row: Mapping[str, str], column: str) -> float | None:
    return positive_number("run", column, row, TraceError) if row[column] else None


def _framework(row: Mapping[str, str]) -> str:
    """The framework as it was in the year that the source's file names, such as torchtitan-2024.

    It is that of today where none of the year is shipped.
    """
    name, year = row["framework"], _match("year", row["prov"])
    dated = f"{name}-{year.group(1)}" if year else name
    return dated if dated.lower() in names_of_files("framework") else name


def _node_bandwidth(row: Mapping[str, str]) -> float | None:
    """Bytes/s that a node sends, from notes such as `4x100Gb RoCE per node`."""
    found = _noted(row, "nics")
    gbps = _words().node_gbps.get(row["source"])
    if found:
        nics, each, whole = found.groups()
        gbps = int(whole) if whole else int(nics) * int(each)
    return None if gbps is None else gbps * 1e9 / _BITS
