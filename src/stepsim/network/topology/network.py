"""A topology, however it is described, and what both kinds share."""

from typing import TYPE_CHECKING, TypeAlias, Union

from stepsim.base.errors import TopologyError

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx

    from stepsim.network.topology.listed import ListedTopology
    from stepsim.network.topology.nested import NestedTopology

    TopologyLike: TypeAlias = "str | Path | nx.Graph | Topology"
    """What `files.load.load_topology` takes: a name, a file, a graph, or the topology itself."""


Topology = Union["NestedTopology", "ListedTopology"]
"""A network of `npus` NPUs, numbered from 0, joined by directed links of a few classes.

Both kinds can be asked the same. `node_size` consecutive NPUs share a node; traffic between the
NPUs of an aligned block of one of the sizes `blocks`, which ascend, stays in it. Flows are arrays
with one element per flow; one from an NPU to itself crosses nothing.
"""

MAX_NPUS = 1 << 22
"""NPUs of the largest network, and of the largest job: 5 s and 0.6 GB where tp fills a node."""


def check_room(topology: Topology, npus: int) -> None:
    """Raise TopologyError when a job of `npus` does not fit."""
    if npus > topology.npus:
        raise TopologyError(
            f"topology {topology.name} has {topology.npus} NPUs: the job needs {npus}"
        )
