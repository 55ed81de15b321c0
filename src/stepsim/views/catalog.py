"""What stepsim knows by name, as tables and as a list of names."""

from collections.abc import Mapping, Sequence

from stepsim.documents.table import SHARE, TEXT, Cell, Column, Heads, Sheet, paths, table_of
from stepsim.files.catalog import (
    CatalogDocument,
    CatalogModel,
)

_BILLION, _TERA = 1e9, 1e12
_PARAMETERS = Column(write=lambda count: f"{count / _BILLION:,.4g} B")
FLOPS = Column(write=lambda rate: f"{rate / _TERA:,.4g} TFLOP/s")


def _active(model: CatalogModel) -> Cell:
    is_sparse = model.active_parameters != model.parameters
    return model.active_parameters if is_sparse else None


_COLUMNS: Mapping[str, Heads] = {
    "models": paths(
        "model = name, parameters, per token, layers, configuration = source",
        {"parameters": _PARAMETERS.of("parameters"), "per token": _PARAMETERS.of(_active)},
    ),
    "devices": {
        **paths("device = name"),
        "peak, 16 bits": FLOPS.of("peak_flops"),
        **paths("memory_bytes, its bandwidth = memory_bandwidth, rates = evidence"),
        "topology": TEXT.of(lambda device: device.topology or None),
    },
    "frameworks": paths(
        "framework = name, kinds of published runs = error_bands, on",
        {"on": TEXT.of(lambda framework: ", ".join(framework.devices) or None)},
    ),
    "topologies": paths(
        "topology = name, device, size, held against, mean error, what it is = about",
        {
            "device": TEXT.of(lambda topology: topology.device or None),
            "size": TEXT.of(lambda topology: " x ".join(topology.sizes) or "as listed"),
            "held against": Column(write=lambda times: f"{times} times").of("held_times"),
            "mean error": SHARE.of(lambda each: "unknown" if each.error is None else each.error),
        },
    ),
    "schedules": paths("schedule = name, what it is = about"),
    "algorithms": paths("algorithm = name, what it is = about"),
}


def names_shown(names: Mapping[str, Sequence[str]]) -> Sheet:
    """How many names there are of each kind, and which."""
    for kind, known in names.items():
        yield f"{len(known)} {kind}: {', '.join(known)}"


def catalog_shown(catalog: CatalogDocument, kind: str) -> Sheet:
    """The table of a kind, such as `models`."""
    yield table_of("", getattr(catalog, kind), _COLUMNS[kind])
