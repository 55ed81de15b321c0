"""Tables of a machine's library in topology TOML files: what may be written, with defaults."""

from typing import Annotated

import msgspec
from msgspec import Meta

from stepsim.base.fields import Bandwidth, Count, Share, Size, Time
from stepsim.workload.rows import CollectiveKind

COLLECTIVE_KINDS = [kind.value for kind in CollectiveKind]
_Kind = Annotated[str, Meta(extra_json_schema={"enum": COLLECTIVE_KINDS})]


class ProtocolTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """`[[protocol]]`: how the machine's library sends; the fastest that serves is taken.

    `step` and `rate` are by name of the links.
    """

    name: Annotated[str, Meta(description="of the protocol, such as LL")]
    algorithms: Annotated[list[str], Meta(description="that it sends for; empty: all")] = []
    kinds: Annotated[list[_Kind], Meta(description="of collectives it sends; empty: all")] = []
    least_nodes: Annotated[Count, Meta(description="over which a group lies")] = 1
    most_nodes: Annotated[Count, Meta(description="over which a group lies; 0: any")] = 0
    launch: Annotated[Time, Meta(description="on top of launch_latency, with its unit")] = "0 ns"
    copy: Annotated[Bandwidth, Meta(description="of a rank's own share, before it is sent")] = "inf"
    step: Annotated[
        dict[str, Time], Meta(description="on top of the endpoint latency, by links")
    ] = {}
    rate: Annotated[dict[str, Share], Meta(description="of the links' payload, by links")] = {}


class AccuracyTable(
    msgspec.Struct,
    forbid_unknown_fields=True,
    frozen=True,
    omit_defaults=True,
    rename={"first": "from"},
):
    """`[[accuracy]]`: how far times are from measured ones, of collectives and sizes."""

    collective: _Kind
    nodes: Annotated[Count, Meta(description="the most measured: 1, or several")]
    ranks: Annotated[Count, Meta(description="the most measured")]
    first: Annotated[Size, Meta(description="smallest size, with its unit")]
    to: Annotated[Size, Meta(description="largest size, with its unit")]
    mean: Annotated[Share, Meta(description="mean of |ours / measured - 1|")]
    largest: Annotated[Share, Meta(description="largest of |ours / measured - 1|")]
    samples: Annotated[Count, Meta(description="times measured")]
    source: Annotated[str, Meta(description="where the measurements come from")]
