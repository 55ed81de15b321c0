"""What stepsim knows by name: models, devices, frameworks, topologies, schedules, algorithms."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from stepsim.base.errors import PlanError, TopologyError
from stepsim.base.structs import Bytes, BytesPerSecond, Count, Document, Entry, Names, Share
from stepsim.files.accelerators import (
    device_names,
    framework_names,
    read_device,
    read_framework,
    read_held,
)
from stepsim.files.load import public_names, public_source, read_model, topology_of
from stepsim.files.reading import read_toml, topology_file, topology_names
from stepsim.files.topology.tables import TopologyFile
from stepsim.network.collectives import Algorithm
from stepsim.network.collectives.algorithms import FLAT
from stepsim.network.topology import NestedTopology
from stepsim.parallel.schedules import BUILDERS
from stepsim.workload.model.coverage import HeldAgainst, HeldRuns, held_of
from stepsim.workload.model.evidence import source_of

_SCHEDULES: Mapping[str, str] = MappingProxyType(
    {
        "1f1b": "forwards until the pipeline is full, then one backward per forward",
        "gpipe": "all forwards, then all backwards",
        "interleaved": "1F1B over several chunks per rank, which shortens start-up and drain",
        "combined-1f1b": "interleaved, a forward and a backward fused to hide expert exchanges",
        "looped-bfs": "every chunk runs all its forwards before the next chunk starts",
        "interleaved-zb": "interleaved with split backwards, weight gradients delayed",
        "zb-h1": "1F1B with split backwards: weight gradients fill the drain, memory as 1F1B",
        "zb-v": "zero bubble in a V: two chunks per rank, down the ranks and back up",
        "v-half": "two chunks per rank in a V, half of 1F1B's activations",
        "v-min": "two chunks per rank in a V, a third of 1F1B's activations",
        "dualpipe": "microbatches enter at both ends, forwards fused with backwards",
        "dualpipe-v": "half of DualPipe folded into a V: every stage is held once",
        "auto-zb": "zero bubble, the order searched for by the times of the stages",
    }
)
_ALGORITHMS: Mapping[str, str] = MappingProxyType(
    {
        "auto": "the fastest of those that the topology's library has",
        "ring": "every rank passes blocks to the next one",
        "bidirectional_ring": "a ring in both directions at once, in half of the steps",
        "direct": "every rank sends to every other at once",
        "halving_doubling": "ranks exchange with partners 1, 2, 4, ... places away",
        "double_binary_tree": "half of the data on each of two trees, in small pieces",
        "hierarchical": "level by level on ever smaller shares: reduce in, across, gather out",
        "nvls": "the switch adds what the ranks hold and copies what it sends",
        "tree": "binomial tree: each step reaches twice as many ranks",
        "per_dimension": "level by level, all of the data at every level",
    }
)


class CatalogModel(Entry, frozen=True, kw_only=True):
    """A model by name; `active_parameters` work on a token, `source` gave its configuration.

    Predictions of it were held against `held_runs` published runs; `error` is the mean of them and
    `largest_error` the largest, None where nothing was.
    """

    name: str
    parameters: Count
    active_parameters: Count
    layers: Count
    source: str
    held_runs: Count = 0
    error: Share | None = None
    largest_error: Share | None = None


class CatalogDevice(Entry, frozen=True, kw_only=True):
    """A device by name: its dense peak in 16 bits (FLOP/s), its memory, the machine it ships in.

    `precision` is that of the peak: bf16, or fp16 without it. `evidence` is what the rates of its
    products rest on; the last three say what predictions on it were held against, as of a model.
    """

    name: str
    peak_flops: float
    memory_bytes: Bytes
    memory_bandwidth: BytesPerSecond
    topology: str
    precision: str = "bf16"
    evidence: str = ""
    held_runs: Count = 0
    error: Share | None = None
    largest_error: Share | None = None


class CatalogFramework(Entry, frozen=True, kw_only=True):
    """A training framework by name, how many kinds of runs it was held to, and of which devices.

    The last three say what predictions with it were held against, as of a model.
    """

    name: str
    error_bands: Count
    devices: Names
    held_runs: Count = 0
    error: Share | None = None
    largest_error: Share | None = None


class CatalogTopology(Entry, frozen=True, kw_only=True):
    """A topology by name, and its devices, empty where it names none.

    `sizes` are those of its dimensions from the inside out: a number, or `any` where the job sets
    it. Times of its collectives were held against `held_times` measured ones; `error` is the mean
    of them and `largest_error` the largest, None where nothing was.
    """

    name: str
    device: str
    sizes: Names
    about: str
    held_times: Count = 0
    error: Share | None = None
    largest_error: Share | None = None


class CatalogName(Entry, frozen=True, kw_only=True):
    """A schedule or an algorithm by name, and what it is."""

    name: str
    about: str


class CatalogDocument(Document, frozen=True, kw_only=True):
    """`stepsim list --json`: what stepsim knows by name; null for a kind not asked for."""

    models: tuple[CatalogModel, ...] | None
    devices: tuple[CatalogDevice, ...] | None
    frameworks: tuple[CatalogFramework, ...] | None
    topologies: tuple[CatalogTopology, ...] | None
    schedules: tuple[CatalogName, ...] | None
    algorithms: tuple[CatalogName, ...] | None


def catalog_names() -> dict[str, list[str]]:
    """Names by kind, kinds and names in the order in which they are shown."""
    return {
        "models": public_names(),
        "devices": device_names(),
        "frameworks": framework_names(),
        "topologies": topology_names(),
        "schedules": list(BUILDERS),
        "algorithms": [str(each) for each in Algorithm],
    }


def make_catalog(kind: str | None = None) -> CatalogDocument:
    """What is known of a kind, such as `models`, or of all; raises PlanError for another kind."""
    names = catalog_names()
    if kind is not None and kind not in names:
        close = get_close_matches(kind, names, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise PlanError(f"kind is {kind!r}{meant}: expected one of {', '.join(names)}")
    held = read_held()
    entries: Mapping[str, Callable[[str], Entry]] = {
        "models": partial(_model, held),
        "devices": partial(_device, held),
        "frameworks": partial(_framework, held),
        "topologies": _topology,
        "schedules": _schedule,
        "algorithms": _algorithm,
    }
    found: dict[str, Any] = {
        name: tuple(map(entries[name], known)) if kind in (None, name) else None
        for name, known in names.items()
    }
    return CatalogDocument(**found)


def _model(held: Sequence[HeldRuns], name: str) -> CatalogModel:
    architecture = read_model(name).architecture
    return CatalogModel(
        name=name,
        parameters=architecture.published_parameters,
        active_parameters=architecture.parameters(active=True),
        layers=architecture.depth,
        source=public_source(name),
        **_held(held_of(architecture, held)),
    )


def _device(held: Sequence[HeldRuns], name: str) -> CatalogDevice:
    device = read_device(name)
    rows = (row for row in held if row.device == device.name)
    return CatalogDevice(
        name=name,
        peak_flops=device.rate_of(device.usual_precision).peak,
        memory_bytes=device.memory_bytes,
        memory_bandwidth=device.memory_bandwidth,
        topology=device.topology or "",
        precision=device.usual_precision.value,
        evidence=source_of(device.sources.get("rate")).evidence.value,
        **_held(HeldAgainst.of(rows)),
    )


def _framework(held: Sequence[HeldRuns], name: str) -> CatalogFramework:
    framework = read_framework(name)
    errors = framework.errors
    rows = (row for row in held if framework.name in row.frameworks.split())
    return CatalogFramework(
        name=name,
        error_bands=len(errors),
        devices=tuple(dict.fromkeys(band.device for band in errors)),
        **_held(HeldAgainst.of(rows)),
    )


def _held(held: HeldAgainst) -> dict[str, Any]:
    """What an entry says of the runs that predictions were held against."""
    return {"held_runs": held.runs, "error": held.error, "largest_error": held.largest}


def _schedule(name: str) -> CatalogName:
    """A schedule; one that has no words here is said by its own docstring."""
    about = _SCHEDULES.get(name) or _first_sentence(BUILDERS[name].__doc__ or "")
    return CatalogName(name=name, about=about)


def _algorithm(name: str) -> CatalogName:
    """An algorithm; one that has no words here is said by the docstring of its module."""
    about = _ALGORITHMS.get(name)
    if about is None:
        module = import_module(FLAT[Algorithm(name)].steps.__module__)
        about = _first_sentence(module.__doc__ or "")
    return CatalogName(name=name, about=about)


def _topology(name: str) -> CatalogTopology:
    file = read_toml(topology_file(name), TopologyFile, TopologyError, "topology")
    times = sum(table.samples for table in file.accuracy)
    return CatalogTopology(
        name=name,
        device=file.device,
        sizes=tuple(_sizes(name, file)),
        about=_first_sentence(file.source),
        held_times=times,
        error=sum(table.mean * table.samples for table in file.accuracy) / times if times else None,
        largest_error=max((table.largest for table in file.accuracy), default=None),
    )


def _sizes(name: str, file: TopologyFile) -> Iterator[str]:
    """The size of each dimension of a file, from what it is wired of where the file says none."""
    read = topology_of(name)
    dimensions = read.dimensions if isinstance(read, NestedTopology) else ()
    for table, dimension in zip(file.dimension, dimensions, strict=True):
        said = dimension.size if table.size is None else table.size
        yield "any" if said == "auto" else str(said)


def _first_sentence(text: str) -> str:
    """The first sentence of a source, on one line and without what stands in brackets."""
    line = re.sub(r" \([^)]*\)", "", " ".join(text.split()))
    return line.partition(". ")[0].rstrip(".")
