"""What every topology can be asked, however it is described."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Names, Noun
from stepsim.network.topology.dimension import Library, LinkClass, Load
from stepsim.network.topology.placed import Layout

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx

    TopologyLike: TypeAlias = "str | Path | nx.Graph | Topology"
    """What `files.load.load_topology` takes: a name, a file, a graph, or the topology itself."""


MAX_NPUS = 1 << 22
"""NPUs of the largest network, and of the largest job: 5 s and 0.6 GB where tp fills a node."""


class Bisection(Noun):
    """Bytes/s, one way, between two halves of the NPUs, and how the halves were found."""

    bandwidth: float
    method: str


class Topology(Protocol):
    """A network of `npus` NPUs, numbered from 0, joined by directed links of a few classes."""

    @property
    def name(self) -> str:
        """Name shown in reports."""

    @property
    def source(self) -> str:
        """Where the numbers come from."""

    @property
    def device(self) -> str:
        """Name or file of the accelerator of its NPUs; empty where nobody said."""

    @property
    def npus(self) -> int:
        """NPUs the network holds."""

    @property
    def node_size(self) -> int:
        """Consecutive NPUs that share a node."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of aligned blocks of NPUs, ascending, that traffic between their NPUs stays in."""

    @property
    def grows(self) -> bool:
        """Whether the outermost dimension takes the size a job needs."""

    @property
    def default_npus(self) -> int:
        """NPUs of a job that names no number."""

    def fit(self, npus: int) -> "Topology":
        """The topology with room for a job of `npus`; raises TopologyError if it is too small."""

    @property
    def launch_latency_ps(self) -> int:
        """Paid once per collective."""

    @property
    def algorithms(self) -> Names:
        """Names of the collective algorithms that may be chosen automatically; empty: all."""

    @property
    def library(self) -> Library:
        """Protocols of the machine's communication library."""

    @property
    def link_classes(self) -> tuple[LinkClass, ...]:
        """Classes of links that are alike."""

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""

    def link_counts(self) -> tuple[int, ...]:
        """Links per class, each direction counted."""

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters."""

    def links(self) -> Iterator[tuple[int, str, str, LinkClass]]:
        """Every link: its number, the node it leaves, the node it enters, its class."""

    def graph(self) -> "nx.DiGraph":
        """The network as a networkx graph, see `graph.graph_of`."""

    def canonical(self, members: Ints) -> Ints:
        """Groups (rows of NPU numbers) in a form in which equal rows cost the same."""

    def layout(self, members: Ints) -> Layout:
        """How a group of NPUs lies on the network, for the algorithms to follow."""

    def bisection(self) -> Bisection:
        """The least bandwidth found between two halves of the NPUs."""

    def injection(self) -> float:
        """Bytes/s that an NPU can send over all its links at once, on average."""

    def long_routes(self) -> Ints:
        """Links per class (columns) on routes among which are those with most links and latency."""

    def load(self, sources: Ints, destinations: Ints, weights: Floats) -> Load:
        """What flows of `weights[i]` from NPU `sources[i]` to `destinations[i]` put on the links.

        All arrays have one element per flow; a flow from an NPU to itself crosses nothing.
        """

    def exchange(self, members: Ints) -> Load | None:
        """What a flow of weight 1 between any two members puts on the links; paths not counted.

        None where nothing is faster than a flow per pair: on listed links, and of members that are
        no combinations of coordinates where not all dimensions are switches.
        """

    def loads_apart(
        self, sources: Ints, destinations: Ints, weights: Floats, owners: Ints
    ) -> tuple[Ints, Ints, Floats]:
        """As `load`, but for each owner of flows by itself: columns of owner, link and load."""


def check_room(topology: Topology, npus: int) -> None:
    """Raise TopologyError when a job of `npus` does not fit."""
    if npus > topology.npus:
        raise TopologyError(
            f"topology {topology.name} has {topology.npus} NPUs: the job needs {npus}"
        )
