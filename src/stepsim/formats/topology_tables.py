"""Tables of topology TOML files: what may be written, with defaults."""

import msgspec


class CollectiveTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[collective]`: what is paid once per collective, and which algorithms its library has."""

    launch_latency: str = "0 ns"
    algorithms: list[str] = []


class LinkClassTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[link_class]]`: links that are alike."""

    name: str
    bandwidth: str
    latency: str
    endpoint_latency: str = "0 ns"
    efficiency: float = 1.0


class DimensionTable(LinkClassTable, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[[dimension]]`, innermost first."""

    kind: str
    size: int | str | None = None
    nics: int = 1
    npus_per_nic: int = 1
    reduces: bool = False
    reduce_efficiency: float = 1.0
    shape: list[int] | None = None
    cables: list[tuple[int, int]] | None = None
    rails: bool | None = None
    radix: int | None = None
    leaf: int | None = None
    spines: int | None = None
    oversubscription: float | None = None
    pod: int | None = None
    cores: int | None = None
    up_bandwidth: str | None = None
    routers: int | None = None
    npus_per_router: int | None = None
    global_links: int | None = None
    global_bandwidth: str | None = None
    global_latency: str | None = None


class LinkTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"start": "from"}):
    """`[[link]]`: a cable, both directions unless `oneway`."""

    start: str
    to: str
    link_class: str
    oneway: bool = False


class TopologyFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A topology file."""

    name: str
    source: str
    dimension: list[DimensionTable] = []
    link_class: list[LinkClassTable] = []
    link: list[LinkTable] = []
    npus: int | None = None
    node_size: int | None = None
    npus_forward: bool = False
    collective: CollectiveTable = CollectiveTable()
