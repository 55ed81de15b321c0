"""What stepsim knows by name: models, devices, frameworks, topologies, schedules, algorithms."""

import re
from collections.abc import Callable, Mapping
from functools import partial

from stepsim.base.errors import PlanError
from stepsim.base.structs import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Entry,
    Names,
    Share,
    Values,
    shipped,
)
from stepsim.files.accelerators import device_names, framework_names, read_device, read_framework
from stepsim.files.load import public_model, public_names, read_model, topology_of
from stepsim.files.reading import question, topology_names
from stepsim.network.collectives import Algorithm
from stepsim.parallel.schedules import BUILDERS
from stepsim.workload.model.evidence import source_of


class CatalogModel(Entry):
    """A model by name; `active_parameters` work on a token, `source` gave its configuration."""

    name: str
    parameters: Count
    active_parameters: Count
    layers: Count
    source: str


class CatalogDevice(Entry):
    """A device by name: its dense peak in 16 bits (FLOP/s), its memory, the machine it ships in.

    `precision` is that of the peak: bf16, or fp16 without it. `evidence` is what the rates of its
    products rest on.
    """

    name: str
    peak_flops: float
    memory_bytes: Bytes
    memory_bandwidth: BytesPerSecond
    topology: str
    precision: str = "bf16"
    evidence: str = ""


class CatalogFramework(Entry):
    """A training framework by name, how many kinds of runs it was held to, and of which devices."""

    name: str
    error_bands: Count
    devices: Names


class CatalogTopology(Entry):
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


class CatalogName(Entry):
    """A schedule or an algorithm by name, and what it is."""

    name: str
    about: str


class CatalogDocument(Document):
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
        raise PlanError(
            f"kind is {kind!r}{question(kind, names)}: expected one of {', '.join(names)}"
        )
    found: Values = dict.fromkeys(names)
    for each in [kind] if kind else names:
        found[each] = tuple(map(_ENTRIES.get(each, partial(_named, each)), names[each]))
    return CatalogDocument(**found)


def _model(name: str) -> CatalogModel:
    architecture = read_model(name).architecture
    return CatalogModel(
        name=name,
        parameters=architecture.published_parameters,
        active_parameters=architecture.parameters(active=True),
        layers=architecture.depth,
        source=public_model(name).get("source", "its vendor's config.json"),
    )


def _device(name: str) -> CatalogDevice:
    device = read_device(name)
    return CatalogDevice(
        name=name,
        peak_flops=device.rate_of(device.usual_precision).peak,
        memory_bytes=device.memory_bytes,
        memory_bandwidth=device.memory_bandwidth,
        topology=device.topology or "",
        precision=device.usual_precision.value,
        evidence=source_of(device.sources.get("rate")).evidence.value,
    )


def _framework(name: str) -> CatalogFramework:
    errors = read_framework(name).errors
    return CatalogFramework(
        name=name,
        error_bands=len(errors),
        devices=tuple(dict.fromkeys(band.device for band in errors)),
    )


def _named(kind: str, name: str) -> CatalogName:
    words = shipped(__file__, "catalog.toml", dict[str, dict[str, str]])
    return CatalogName(name=name, about=words[kind][name])


def _topology(name: str) -> CatalogTopology:
    topology = topology_of(name)
    held = topology.library.accuracy
    times = sum(each.samples for each in held)
    sizes = [str(dimension.whole) for dimension in topology.dimensions]
    # the first sentence of the source is shown, without what stands in brackets
    about = re.sub(r" \([^)]*\)", "", " ".join(topology.source.split()))
    return CatalogTopology(
        name=name,
        device=topology.device,
        sizes=(*sizes[:-1], "any") if topology.grows else tuple(sizes),
        about=about.partition(". ")[0].rstrip("."),
        held_times=times,
        error=sum(each.mean * each.samples for each in held) / times if times else None,
        largest_error=max((each.largest for each in held), default=None),
    )


# What says what is known of a name, by its kind; others have words of their own.
_ENTRIES: Mapping[str, Callable[[str], Entry]] = {
    "models": _model,
    "devices": _device,
    "frameworks": _framework,
    "topologies": _topology,
}
