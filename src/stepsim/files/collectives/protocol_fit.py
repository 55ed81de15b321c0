"""The protocols fitted to measured collectives, written into a copy of a topology's file."""

from pathlib import Path
from typing import TypeVar

import msgspec

from stepsim.base.errors import TopologyError
from stepsim.files.reading import read_toml
from stepsim.files.topology.library import library_tables
from stepsim.files.topology.tables import LinkClassTable, TopologyFile
from stepsim.files.topology.writer import topology_file_text
from stepsim.files.writing import write_whole
from stepsim.network.topology import LinkClass, Topology

_LinksTable = TypeVar("_LinksTable", bound=LinkClassTable)

_SAYS = "\nProtocols, launch, endpoint latency and efficiency: fitted by `stepsim calibrate nccl`"


def write_fitted(base: Path, fitted: Topology, path: Path) -> None:
    """Write the file of a topology with the library and the numbers of a fit; see `fit_protocols`.

    Raises TopologyError naming the file and what it cannot be.
    """
    file = read_toml(base, TopologyFile, TopologyError, "topology")
    links = {link.name: link for link in fitted.link_classes}
    protocols, accuracy = library_tables(fitted.library)
    sources = "; ".join(dict.fromkeys(each.source for each in fitted.library.accuracy))
    said, _, _ = file.source.strip().partition(_SAYS)
    written = msgspec.structs.replace(
        file,
        name=path.stem,
        source=f"{said}{_SAYS}\nto {sources}.\n",
        collective=msgspec.structs.replace(
            file.collective, launch_latency=f"{fitted.launch_latency_ps / 1e6:.4g} us"
        ),
        dimension=[_numbered(each, links) for each in file.dimension],
        link_class=[_numbered(each, links) for each in file.link_class],
        protocol=protocols,
        accuracy=accuracy,
    )
    write_whole(path, topology_file_text(written).encode())


def _numbered(table: _LinksTable, links: dict[str, LinkClass]) -> _LinksTable:
    link = links[table.name]
    return msgspec.structs.replace(
        table,
        endpoint_latency=f"{link.endpoint_latency_ps / 1e6:.4g} us",
        efficiency=link.efficiency,
    )
