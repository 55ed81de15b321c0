"""Topology files: TOML with `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables."""

from pathlib import Path

from stepsim.base.errors import TopologyError, bad_value
from stepsim.base.units import parse_time_ps
from stepsim.files.reading import read_toml
from stepsim.files.topology.dimensions import AUTO, dimensions_of
from stepsim.files.topology.links import links_of
from stepsim.files.topology.tables import TopologyFile
from stepsim.files.topology.text import quantity
from stepsim.network.collectives import Algorithm
from stepsim.network.topology import NestedTopology, Topology


def read_topology(path: Path) -> Topology:
    """Topology in a TOML file; an outermost `size = "auto"` starts with two innermost blocks.

    Raises TopologyError naming the file and the entry at fault.
    """
    file = read_toml(path, TopologyFile, TopologyError, "topology")
    try:
        if bool(file.dimension) == bool(file.link):
            raise TopologyError("expected either [[dimension]] or [[link]] tables")
        place = "collective.launch_latency"
        launch = quantity(parse_time_ps, place, file.collective.launch_latency)
        algorithms = _algorithms(file.collective.algorithms)
        if file.dimension:
            return _nested(file, launch, algorithms)
        return links_of(file, launch, algorithms)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _algorithms(names: list[str]) -> tuple[str, ...]:
    allowed = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.AUTO]
    for name in names:
        if name not in allowed:
            expected = f"of {', '.join(allowed)}"
            raise TopologyError(bad_value("collective", "algorithms", name, expected))
    return tuple(names)


def _nested(file: TopologyFile, launch: int, algorithms: tuple[str, ...]) -> NestedTopology:
    for option in ("npus", "node_size", "npus_forward", "link_class"):
        if getattr(file, option):
            raise TopologyError(f"{option} belongs to topologies made of [[link]] tables")
    topology = NestedTopology(
        name=file.name,
        source=file.source,
        dimensions=dimensions_of(file.dimension),
        launch_latency_ps=launch,
        algorithms=algorithms,
        grows=file.dimension[-1].size == AUTO,
    )
    return topology.fit(topology.default_npus) if topology.grows else topology
