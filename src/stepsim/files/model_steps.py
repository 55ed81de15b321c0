"""Tables of measured steps of published models: CSV, a row per run with shape, plan and time."""

import re
from collections import defaultdict
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from stepsim.base.errors import StepsimError, TraceError, bad_value, member
from stepsim.base.structs import Names, Noun, Values, replace, shipped
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import public_names, read_model
from stepsim.files.models.fields import MOST_LAYERS
from stepsim.files.reading import (
    csv_rows,
    first_columns,
    names_of_files,
    number_in,
    read_text,
    whole_number,
)
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    Layer,
    Layers,
)
from stepsim.workload.model.choices import (
    AttentionKernel,
    ExpertDispatch,
    GraphScope,
    Precision,
    Recompute,
    RecomputeModule,
    RecomputeModules,
)
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.framework import Framework, Recipe
from stepsim.workload.model.held import layout_of_costs
from stepsim.workload.model.layout import LayerLayout, counted_layout, even_or_ends, parse_layout
from stepsim.workload.plan import Plan

# Samples that fill a packed sequence: a guess, for no source says their lengths.
_SAMPLES = 8

_BITS = 8
_Name = TypeVar("_Name", bound=StrEnum)


def _words(table: str) -> Any:
    """What rows say in words, as `model_steps.toml` has it."""
    return shipped(__file__, "model_steps.toml", Values)[table]


def _match(pattern: str, text: str) -> re.Match[str] | None:
    """What a pattern of a name finds in a text."""
    return re.search(_words("pattern")[pattern], text)


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
    return path.suffix == ".csv" and set(_words("columns")) <= first_columns(path)


def read_published_steps(path: Path) -> tuple[tuple[PublishedStep, ...], Names]:
    """The rows of a table, and a warning for each that is left out: it says why.

    Sources write down what others leave open, so that a cell nobody can read is no reason to drop
    the table. Raises TraceError where a column is missing or no row can be read.
    """
    text = read_text(path, TraceError, "table of measured steps", "CSV")
    found, warnings = [], []
    names, rows = csv_rows(path, text, TraceError)
    missing = [name for name in _words("columns") if name not in names]
    if missing:
        raise TraceError(f"{path}: no column {missing[0]}")
    for number, row in rows:
        try:
            found.append(_Row(str, row).step())
        except StepsimError as error:
            warnings.append(f"{path.name}: row {number} is left out: {error}")
    if warnings and not found:
        raise TraceError(f"{path}: no row can be read: {warnings[0]}")
    return tuple(found), tuple(warnings)


class _Row(defaultdict[str, str]):
    """A row of a table by its columns, empty where it has none."""

    def _member(self, column: str, kind: type[_Name]) -> _Name:
        return member(kind, self[column], f"run: {column}", TraceError)

    def _noted(self, pattern: str) -> re.Match[str] | None:
        """What a pattern of a name finds in the note of a self."""
        return _match(pattern, self["note"])

    def step(self) -> PublishedStep:
        """The run of the row; raises TraceError naming the column at fault."""
        if self._noted("no_shape"):
            raise TraceError(f"run {self['id']}: the shape of {self['model']} is not known")
        architecture = self._architecture()
        per_node = self._count("gpn", 8, least=1)
        ran_out = any(_match("out", self[name]) for name in ("step_s", "mem_gib", "note"))
        # Gbit/s that a node sends, from notes such as `4x100Gb RoCE per node`
        gbps = _words("node_gbps").get(self["source"])
        if nics := self._noted("nics"):
            count, each, whole = nics.groups()
            gbps = int(whole) if whole else int(count) * int(each)
        return PublishedStep(
            name=self["id"],
            source=self["source"],
            model=self["model"],
            architecture=architecture,
            plan=self._plan(architecture),
            device=self["gpu"],
            framework=self._framework(),
            npus_per_node=per_node,
            measured_s=None if ran_out else self._number("step_s"),
            memory_gib=None if ran_out else self._number("mem_gib"),
            node_bandwidth=None if gbps is None else gbps * 1e9 / _BITS,
            context=self._context(),
            is_complete=self.get("complete", "1") == "1",
            ran_out=ran_out,
            release=self._named("release"),
        )

    def _named(self, pattern: str) -> str | None:
        """What a note names by a pattern, such as a framework's release, 26.06.01."""
        found = self._noted(pattern)
        return found.group(1) if found else None

    def _architecture(self) -> Architecture:
        """The model of the row's columns, which say nothing of latent attention or shared experts.

        A model with experts that has the name and the shape of a public one is that one, with as
        many layers and words as the row says, and the layers that its note says predict further
        tokens.
        """
        own, mixes = self._of_columns(), bool(self._noted("mixes"))
        if not own.is_sparse and not mixes:
            return own
        public = _public_shape(self["model"])
        if public is None or not _alike(public, own) or public.mixes < mixes:
            if mixes:
                raise TraceError(
                    f"run {self['id']}: no public model {self['model']} says its blocks"
                )
            return own
        again = int(self._named("predictions") or 0)
        return replace(
            public,
            name=own.name,
            layers=_resized(public, own),
            vocabulary=own.vocabulary,
            prediction_layers=public.prediction_layers[:1] * again,
        )

    def _of_columns(self) -> Architecture:
        act = self._member("act", Activation)
        attention = GroupedAttention(
            heads=self._count("heads"),
            kv_heads=self._count("kv_heads"),
            head_dim=self._count("head_dim"),
        )
        experts = self._count("experts", 0)
        width = self._count("ffn")
        mlp: DenseMlp | ExpertMlp = DenseMlp(width=width, activation=act)
        if experts:
            mlp = ExpertMlp(
                experts=experts, top_k=self._count("topk", 1), width=width, activation=act
            )
        return Architecture(
            name=self["model"],
            hidden=self._count("hidden"),
            layers=(Layer(attention=attention, mlp=mlp),) * self._count("layers", most=MOST_LAYERS),
            vocabulary=self._count("vocab"),
            tied=bool(_match("tied", self["model"])),
            dropout=self["attn"] == AttentionKernel.UNFUSED,
        )

    def _plan(self, architecture: Architecture) -> Plan:
        recompute, modules, offload = self._recomputed()
        sequence = self._count("seq")
        pp, chunks = self._count("pp", 1, least=1), max(self._count("vpp", 1), 1)
        stages = whole_number("run", "pp x vpp", pp * chunks, TraceError, 1, MOST_LAYERS)
        framework = read_framework(self._framework())
        usual = self._usual(framework, architecture)
        by_cost = pp > 1 and framework.balances_stages
        library = self._named("deepep") or ExpertDispatch.ALL_TO_ALL
        graphs = self._noted("graph")
        context = self._context() or framework.context
        return Plan.of_batch(
            **{degree: self._count(degree, 1) for degree in ("tp", "cp", "ep")},
            dp=self._data_parallel(),
            pp=pp,
            expert_tp=self._count("etp", 1) if architecture.is_sparse else None,
            chunks=chunks,
            microbatch_size=self._count("mbs"),
            global_batch=self._count("gbs"),
            sequence=sequence,
            precision=self._member("precision", Precision),
            sequence_parallel=self["sp"] == "1",
            zero=self._count("zero", 0),
            reshard=pp == 1 or self._count("zero", 0) < 3,  # torchtitan: dropped without a pipeline
            recompute=recompute,
            recompute_modules=modules,
            offload_layers=offload,
            layout=layout_of_costs(architecture, stages)
            if by_cost
            else self._layout(architecture, stages),
            context=context.exchange,
            attention=self._member("attn", AttentionKernel)
            if self["attn"]
            else AttentionKernel.FLASH,
            dispatch=usual.get("dispatch", ExpertDispatch(library.lower())),
            tp_comm_overlap=self["tp_overlap"] == "1",
            dp_overlap=self["dp_overlap"] == "1",
            expert_overlap=bool(usual.get("expert_overlap") or self._noted("overlap")),
            shared_overlap=usual.get("shared_overlap", bool(self._noted("shared"))),
            delay_wgrad=usual.get("delay_wgrad", bool(self._noted("delayed"))),
            cuda_graph=usual.get("cuda_graph", self["cuda_graph"] == "1"),
            graph_scopes=_listed(graphs.group(2), GraphScope) if graphs else None,  # all if none
            packed=sequence // _SAMPLES if self._noted("packed") else None,
            adapters=bool(self._noted("adapters")),
        )

    def _data_parallel(self) -> int:
        """Replicas of the model: those of the row, which are what the GPUs leave to them.

        For example 32 GPUs of tp 4 and pp 2 are 4, whether dp says so or is empty.
        """
        npus = self._count("n_gpus", 0, least=1)
        replica = prod(self._count(degree, 1, least=1) for degree in ("tp", "cp", "pp"))
        dp = self._count("dp", npus // replica or 1)
        if npus not in (0, dp * replica):
            expected = f"tp x cp x pp x dp, {dp * replica}"
            raise TraceError(bad_value("run", "n_gpus", npus, expected))
        return dp

    def _usual(self, framework: Framework, architecture: Architecture) -> Values:
        """How tokens reach experts and what graphs hold in the release, if the source is silent."""
        if not architecture.is_sparse or not self._noted("unprinted"):
            return {}
        device = read_device(self["gpu"])
        precision, release = self._member("precision", Precision), self._named("release")
        job = framework.of_job(device.name, precision, sparse=True, release=release)
        usual, recipe = job.job_options, self._recipe()
        if recipe and recipe.dispatch:
            usual["dispatch"] = recipe.dispatch
        return usual

    def _layout(self, architecture: Architecture, stages: int) -> LayerLayout:
        """The layout that a note says: letters, or layers of the first and last of two stages."""
        ahead = len(architecture.prediction_layers)
        letters, ends = self._named("layout"), self._noted("ends")
        if letters:
            return parse_layout(letters if ahead else letters.replace("m", ""))
        counts = [int(count) for count in ends.groups()] if ends else []
        if stages == 2 and sum(counts) == architecture.depth:
            return counted_layout(counts, ahead)
        return even_or_ends(architecture.depth, stages)

    def _context(self) -> ContextParallel | None:
        """Transformer Engine's, where the note of a row says that attention is its."""
        return ContextParallel() if self._noted("engine") else None

    def _recomputed(self) -> tuple[Recompute, RecomputeModules, int]:
        """What is recomputed, which modules, and of how many layers activations leave the device.

        Modules stand in the note. Where the source does not print recomputation, the framework's
        public recipe of the model says it.
        """
        known, said = _words("recompute"), self["recompute"]
        if said not in known:
            allowed = f"one of {', '.join(filter(None, known))}"
            raise TraceError(bad_value("run", "recompute", said, allowed))
        recompute = Recompute(known[said])
        listed = self._named("modules")
        if listed is not None and recompute is not Recompute.FULL:
            return Recompute.NONE, _listed(listed, RecomputeModule), 0
        recipe = self._recipe() if said == "unknown" else None
        if recipe is None:
            return recompute, (), 0
        return recompute, recipe.recompute_modules, recipe.offload_layers

    def _recipe(self) -> Recipe | None:
        """The public recipe of the framework for the model, device, format and pipeline."""
        framework, device = read_framework(self["framework"]), read_device(self["gpu"])
        degrees = {name: self._count(name, 1) for name in ("tp", "pp")}
        chunks, zero = max(self._count("vpp", 1), 1), self._count("zero", 0)
        precision = self._member("precision", Precision)
        recipes = framework.recipes_of(self["model"], device.name, precision)
        return next(
            (one for one in recipes if one.suits(**degrees, chunks=chunks, zero=zero)), None
        )

    def _count(
        self, column: str, default: int | None = None, least: int = 0, most: int = 10**12
    ) -> int:
        if not self[column] and default is not None:
            return default
        return whole_number("run", column, self[column], TraceError, least, most)

    def _number(self, column: str) -> float | None:
        return number_in("run", column, self[column], TraceError) if self[column] else None

    def _framework(self) -> str:
        """The framework as it was in the year that the source names, such as torchtitan-2024.

        It is that of today where none of the year is shipped.
        """
        name, year = self["framework"], _match("year", self["prov"])
        dated = f"{name}-{year.group(1)}" if year else name
        return dated if dated.lower() in names_of_files("framework") else name


def _alike(public: Architecture, own: Architecture) -> bool:
    """Whether two models have the same width, heads in some layer, and experts."""
    kinds = [model.layer_kinds() for model in (public, own)]
    heads, own_heads = ({getattr(k.attention, "heads", 0) for k in each} for each in kinds)
    experts, own_experts = (
        {(k.mlp.experts, k.mlp.top_k) for k in each if isinstance(k.mlp, ExpertMlp)}
        for each in kinds
    )
    return public.hidden == own.hidden and own_heads <= heads and experts == own_experts


def _resized(public: Architecture, own: Architecture) -> Layers:
    """The layers of the public model, as many as a row has.

    A name that ends with `-d1` has one dense layer in front, whatever the public model has.
    """
    layers = public.layers
    told = _match("dense_layers", own.name)
    dense, sparse = ([one for one in layers if one.is_sparse is has] for has in (False, True))
    if told and dense and sparse:
        first = int(told.group(1))
        layers = (dense[0],) * first + (sparse[0],) * (own.depth - first)
    return (*layers, *(layers[-1],) * (own.depth - len(layers)))[: own.depth]


def _public_shape(name: str) -> Architecture | None:
    """The public model that a row's name means, such as `qwen3-30b` qwen3-30b-a3b; None without."""
    wanted = _plain(re.sub(_words("pattern")["dense_layers"], "", name))
    names = [each for each in public_names() if _plain(each).startswith(wanted)]
    exact = [each for each in names if _plain(each) == wanted]
    chosen = exact or names
    return read_model(chosen[0]).architecture if len(chosen) == 1 else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace(".", "")


def _listed(text: str | None, kind: type[_Name]) -> tuple[_Name, ...]:
    """The names between the commas of a note, without those that nobody knows."""
    names = [name.strip() for name in (text or "").split(",")]
    return tuple(kind(name) for name in names if name in [*kind])
