"""Tables of topology TOML files: what may be written, with defaults, and what it means.

What the readers of all forms of topologies share stands at the end: quantities, classes of links,
names of algorithms.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from msgspec import Meta

from stepsim.base.errors import StepsimError, TopologyError, bad_value
from stepsim.base.quantities import Bandwidth, Size, Time
from stepsim.base.structs import Count, Names, Share, TomlTable
from stepsim.network.collectives import Algorithm
from stepsim.network.topology import DimensionKind
from stepsim.network.topology.dimension import LinkClass, Protocol
from stepsim.workload.axes import CollectiveKind

_ALGORITHMS = [name.value for name in Algorithm if name is not Algorithm.AUTO]
NPU = re.compile(r"npu(0|[1-9][0-9]{0,8})")
"""What NPUs are called in files of links, and in graphs where they have numbers."""
_Positive = Annotated[int, Meta(extra_json_schema={"minimum": 1})]
_AlgorithmName = Annotated[str, Meta(extra_json_schema={"enum": _ALGORITHMS})]
_Extent = Annotated[
    int | str,
    Meta(
        description='NPUs, or blocks of the dimensions inside; "auto": what the job needs',
        extra_json_schema={"minimum": 1, "pattern": "^auto$"},
    ),
]


class CollectiveTable(TomlTable):
    """`[collective]`: what is paid once per collective, and which algorithms its library has.

    Without `algorithms` it has all. `reach` is the most links of a name that the ranks of a node
    use together.
    """

    launch_latency_ps: Time = 0
    algorithms: list[_AlgorithmName] = []
    reach: Annotated[
        dict[str, int], Meta(description="by links outside a node: NICs that a group reaches")
    ] = {}


class DimensionTable(LinkClass):
    """`[[dimension]]`, innermost first; which options go with which kind is in docs/formats.md."""

    kind: Annotated[DimensionKind, Meta(description="how a dimension joins its NPUs")]
    size: _Extent | None = None
    nics: Annotated[_Positive, Meta(description="links of each NPU, used evenly")] = 1
    npus_per_nic: Annotated[_Positive, Meta(description="neighbours that share a NIC")] = 1
    reduces: Annotated[bool, Meta(description="whether the switch reduces in flight")] = False
    reduce_efficiency: Annotated[
        Share, Meta(description="of the links' capacity when the switch reduces")
    ] = 1.0
    used: Annotated[
        _Positive | None,
        Meta(description="switch inside others: NPUs of it that jobs of more than one take"),
    ] = None
    shape: Annotated[list[_Positive] | None, Meta(description="sides of a torus or mesh")] = None
    cables: Annotated[
        list[tuple[int, int]] | None,
        Meta(description="pairs of NPUs; repeated where cables are parallel"),
    ] = None
    rails: Annotated[
        bool | None, Meta(description="fat tree: whether it joins equal inner coordinates only")
    ] = None
    radix: Annotated[
        _Positive | None, Meta(description="fat tree: ports of a switch; three layers")
    ] = None
    leaf: Annotated[_Positive | None, Meta(description="fat tree: NPUs of a leaf switch")] = None
    spines: Annotated[_Positive | None, Meta(description="fat tree: links up from a leaf")] = None
    oversubscription: Annotated[
        float | None, Meta(description="fat tree: bandwidth down over bandwidth up of a leaf")
    ] = None
    pod: Annotated[
        _Positive | None, Meta(description="fat tree: NPUs below one group of spines; three layers")
    ] = None
    cores: Annotated[_Positive | None, Meta(description="fat tree: links up from a spine")] = None
    up_bandwidth: Annotated[
        Bandwidth | None, Meta(description="fat tree: of a link between switches, with its unit")
    ] = None
    routers: Annotated[_Positive | None, Meta(description="dragonfly: routers of a group")] = None
    npus_per_router: Annotated[
        _Positive | None, Meta(description="dragonfly: NPUs of a router")
    ] = None
    global_links: Annotated[
        _Positive | None, Meta(description="dragonfly: links of a router to other groups")
    ] = None
    global_bandwidth: Annotated[
        Bandwidth | None, Meta(description="dragonfly: of a link between groups, with its unit")
    ] = None
    global_latency_ps: Annotated[
        Time | None, Meta(description="dragonfly: of a link between groups, with its unit")
    ] = None


class LinkTable(TomlTable, rename={"start": "from"}):
    """`[[link]]`: a cable between `npu0`, `npu1`, ... and switches of any other name."""

    start: Annotated[str, Meta(description="a node")]
    to: Annotated[str, Meta(description="a node")]
    link_class: Annotated[str, Meta(description="name of a `[[link_class]]`")]
    oneway: Annotated[bool, Meta(description="one direction only")] = False


class AccuracyTable(
    TomlTable,
    rename={"kind": "collective", "most_ranks": "ranks", "first_bytes": "from", "last_bytes": "to"},
):
    """`[[accuracy]]`: how far times are from measured ones, of collectives and sizes."""

    kind: CollectiveKind
    nodes: Annotated[Count, Meta(description="the most measured: 1, or several")]
    most_ranks: Annotated[Count, Meta(description="the most measured")]
    first_bytes: Annotated[Size, Meta(description="smallest size, with its unit")]
    last_bytes: Annotated[Size, Meta(description="largest size, with its unit")]
    mean: Annotated[Share, Meta(description="mean of |ours / measured - 1|")]
    largest: Annotated[Share, Meta(description="largest of |ours / measured - 1|")]
    samples: Annotated[Count, Meta(description="times measured")]
    source: Annotated[str, Meta(description="where the measurements come from")]


class TopologyFile(TomlTable):
    """A topology: nested `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables."""

    name: Annotated[str, Meta(description="of the topology, in reports")]
    source: Annotated[str, Meta(description="where the numbers come from")] = ""
    base: Annotated[str, Meta(description="whose library, efficiency and launch it has")] = ""
    device: Annotated[str, Meta(description="accelerator of its NPUs, name or file")] = ""
    dimension: list[DimensionTable] = []
    link_class: list[LinkClass] = []
    link: list[LinkTable] = []
    npus: Annotated[_Positive | None, Meta(description="NPUs of a topology of links")] = None
    node_size: Annotated[
        _Positive | None, Meta(description="consecutive NPUs that share a node, of links; or all")
    ] = None
    npus_forward: Annotated[
        bool, Meta(description="whether NPUs pass on others' traffic, of links")
    ] = False
    collective: CollectiveTable = CollectiveTable()
    protocol: list[Protocol] = []
    accuracy: list[AccuracyTable] = []


_T = TypeVar("_T")


def quantity(parse: Callable[[str], _T], place: str, text: str) -> _T:
    """A parsed quantity; raises TopologyError naming its place."""
    try:
        return parse(text)
    except StepsimError as error:
        raise TopologyError(f"{place}: {error}") from None


def class_name(place: str, field: str, name: object) -> str:
    """A name of a class of links; raises TopologyError for what axes could not name."""
    if (
        not isinstance(name, str)
        or not re.fullmatch(r"[A-Za-z][\w-]*", name)
        or name.startswith("npu")
    ):
        expected = "letters, digits, _ and -, not starting with 'npu'"
        raise TopologyError(bad_value(place, field, name, expected))
    return name


def algorithm_names(place: str, names: Iterable[object]) -> Names:
    """Names of collective algorithms; raises TopologyError for one that does not exist."""
    found = []
    for name in names:
        if name not in _ALGORITHMS:
            expected = f"of {', '.join(_ALGORITHMS)}"
            raise TopologyError(bad_value(place, "algorithms", name, expected))
        found.append(str(name))
    return tuple(found)
