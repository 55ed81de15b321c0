"""ASTRA-sim's analytical network files: one list per property, an entry per dimension.

    topology: [ Ring, Switch ]
    npus_count: [ 4, 2 ]
    bandwidth: [ 50.0, 25.0 ]     # GB/s, by which ASTRA-sim means 2**30 bytes/s
    latency: [ 500.0, 700.0 ]     # ns per hop

An outer `Switch` joins NPUs with the same inner coordinates, as a `rail` does here.
"""

from math import prod
from pathlib import Path

import yaml

from stepsim.base.errors import TopologyError, bad_value, errors_at, one_line
from stepsim.base.units import PS_PER_NS
from stepsim.files.reading import number_in, read_text, whole_number
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.network import MAX_NPUS

_KINDS = {
    "Ring": DimensionKind.RING,
    "FullyConnected": DimensionKind.FULLY_CONNECTED,
    "Switch": DimensionKind.RAIL,
}
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
# The least and the most GiB/s, and ns, that a link can have.
_BOUNDS = (("bandwidth", 1e-12, 1e20), ("latency", 0, 1e15))
_GIB = 2**30


def read_astra_network(path: Path) -> NestedTopology:
    """Topology of an ASTRA-sim network file; dimensions are called dim0, dim1, ...

    Raises TopologyError naming the file and the entry at fault.
    """
    expected = "a topology in ASTRA-sim's network YAML"
    text = read_text(path, TopologyError, "topology", expected)
    with errors_at(path, TopologyError):
        lists = _lists(text)
        sizes = [
            whole_number(f"npus_count[{i}]", "value", word, TopologyError, 1, MAX_NPUS)
            for i, word in enumerate(lists["npus_count"])
        ]
        if prod(sizes) > MAX_NPUS:
            npus = " x ".join(lists["npus_count"])
            raise TopologyError(bad_value("npus_count", "product", npus, f"at most {MAX_NPUS}"))
        return NestedTopology(
            name=one_line(path.stem),
            source=one_line(f"ASTRA-sim analytical network file {path.name}"),
            dimensions=tuple(_dimension(i, size, lists) for i, size in enumerate(sizes)),
        )


def _dimension(i: int, size: int, lists: dict[str, list[str]]) -> Dimension:
    word = lists["topology"][i]
    if word not in _KINDS:
        raise TopologyError(
            bad_value(f"topology[{i}]", "kind", word, f"one of {', '.join(_KINDS)}")
        )
    kind = DimensionKind.SWITCH if word == "Switch" and i == 0 else _KINDS[word]
    gib_per_s, latency_ns = (
        number_in(f"{key}[{i}]", "value", lists[key][i], TopologyError, least, most)
        for key, least, most in _BOUNDS
    )
    link = LinkClass(
        name=f"dim{i}",
        bandwidth=gib_per_s * _GIB,
        latency_ps=round(latency_ns * PS_PER_NS),
    )
    return Dimension(kind=kind, size=size, link=link)


def _lists(text: str) -> dict[str, list[str]]:
    """The four lists of words by key, equally long; a word alone is a list of one."""
    try:
        found = yaml.compose(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise TopologyError(f"not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, yaml.MappingNode):
        raise TopologyError("expected lines of 'key: [values]'")
    lists: dict[str, list[str]] = {}
    for key, value in found.value:
        line = f"line {key.start_mark.line + 1}"
        entries = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(each, yaml.ScalarNode) for each in (key, *entries)):
            raise TopologyError(f"{line}: expected 'key: [values]'")
        if key.value in lists:
            raise TopologyError(f"{line}: {key.value} occurs twice")
        lists[key.value] = [each.value for each in entries]
    for key in lists:
        if key not in _KEYS:
            raise TopologyError(f"unknown key {key!r}: expected {', '.join(_KEYS)}")
    for key in _KEYS:
        if key not in lists:
            raise TopologyError(f"{key} is missing")
        if len(lists[key]) != len(lists["topology"]) or not lists[key]:
            raise TopologyError(
                f"{key} has {len(lists[key])} entries, topology {len(lists['topology'])}: "
                "expected one per dimension"
            )
    return lists
