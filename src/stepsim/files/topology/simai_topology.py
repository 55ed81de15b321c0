"""SimAI's topology text: every link of a cluster.

Line 1: nodes, GPUs per server, NVSwitches, other switches, links, GPU type. Line 2: the numbers of
all switches, NVSwitches first; the other nodes are GPUs. Then a line per cable: from, to, bandwidth
(`400Gbps`), latency (`0.0005ms`), error rate (ignored). GPUs forward nothing, routes are shortest
paths, and the file knows no software latency.
"""

from collections import Counter
from itertools import count
from pathlib import Path

from stepsim.base.errors import TopologyError, bad_value, errors_at, one_line
from stepsim.base.structs import replace
from stepsim.base.units import parse_bandwidth, parse_time_ps
from stepsim.files.reading import read_text, whole_number
from stepsim.network.topology import LinkClass
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.network import MAX_NPUS

_MOST_LINKS = 10**9
# What a cable joins, bandwidth and latency.
_Class = tuple[str, str, str]


def read_simai_topology(path: Path) -> ListedTopology:
    """Topology of a SimAI text file: GPUs in the order of their numbers, links in classes.

    A class is what the cable joins (`nvlink` to an NVSwitch, `nic` from GPU to switch, `fabric`
    between switches) and its rates, which are in the name where several join the same things.
    Raises TopologyError naming the file and line at fault.
    """
    text = read_text(path, TopologyError, "topology", "a topology in SimAI's text form")
    with errors_at(path, TopologyError):
        return _read(path, text.splitlines())


def _read(path: Path, lines: list[str]) -> ListedTopology:
    import networkx as nx

    from stepsim.network.topology.cabled import listed_topology

    gpu, counts = _header(lines[0] if lines else "")
    nodes, node_size, nvswitches, switches, links = counts
    if nodes > max(1, 2 * (len(lines) - 2)):
        raise TopologyError(f"line 1: {nodes} nodes: the file has too few links to join them")
    listed = lines[1].split() if len(lines) > 1 else []
    names = _names(nodes, nvswitches, nvswitches + switches, listed)
    classes: dict[_Class, LinkClass] = {}
    cables = [
        _cable(f"line {number}", line.split(), names, classes)
        for number, line in enumerate(lines[2:], start=3)
        if line.strip()
    ]
    if len(cables) != links:
        raise TopologyError(f"line 1: links is {links}: the file has {len(cables)}")
    kinds = Counter(kind for kind, _, _ in classes)
    named = {
        key: replace(link, name=key[0]) if kinds[key[0]] == 1 else link
        for key, link in classes.items()
    }
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(
        (*ends, {"link_class": named[key].name})
        for a, b, key in cables
        for ends in ((a, b), (b, a))
    )
    return listed_topology(
        graph,
        tuple(named.values()),
        name=one_line(path.stem),
        source=one_line(f"SimAI topology file {path.name}, {gpu}"),
        node_size=min(node_size, nodes - nvswitches - switches),
    )


def _header(line: str) -> tuple[str, list[int]]:
    """The type of the GPUs; nodes, GPUs of a server, NVSwitches, other switches and links."""
    words = line.split()
    fields = ("nodes", "GPUs per server", "NVSwitches", "switches", "links")
    if len(words) != len(fields) + 1:
        raise TopologyError(f"line 1: expected {', '.join(fields)}, GPU type: found {line[:60]!r}")
    counts = [
        whole_number("line 1", field, word, TopologyError, 0, _MOST_LINKS)
        for field, word in zip(fields, words, strict=False)
    ]
    nodes, node_size, *switches, _ = counts
    if not sum(switches) < nodes <= MAX_NPUS:
        raise TopologyError(f"line 1: {nodes} nodes, {sum(switches)} of them switches")
    if node_size < 1:
        raise TopologyError(bad_value("line 1", "GPUs per server", node_size, "at least 1"))
    return words[-1], counts


def _names(nodes: int, nvswitches: int, expected: int, words: list[str]) -> list[str]:
    """Names of all nodes by their numbers: npu0, nvswitch16, switch18, ..."""
    listed = [_node("line 2", "switch", word, nodes) for word in words]
    if len(listed) != expected:
        raise TopologyError(f"line 2: {len(listed)} switches listed: line 1 says {expected}")
    names = [""] * nodes
    for place, number in enumerate(listed):
        if names[number]:
            raise TopologyError(f"line 2: switch {number} is listed twice")
        names[number] = f"{'nvswitch' if place < nvswitches else 'switch'}{number}"
    gpus = count()
    return [name or f"npu{next(gpus)}" for name in names]


def _cable(
    place: str, words: list[str], names: list[str], classes: dict[_Class, LinkClass]
) -> tuple[str, str, _Class]:
    """The nodes that a cable joins, and its class, which is added to those seen.

    Its rates are in its name.
    """
    if len(words) != 5:
        expected = "expected from, to, bandwidth, latency, error rate"
        raise TopologyError(f"{place}: {len(words)} fields: {expected}")
    a = _node(place, "from", words[0], len(names))
    b = _node(place, "to", words[1], len(names))
    if a == b:
        raise TopologyError(f"{place}: a link joins {a} to itself")
    ends = names[a], names[b]
    kind = ("fabric", "nic", "gpulink")[sum(name.startswith("npu") for name in ends)]
    kind = "nvlink" if any(name.startswith("nvswitch") for name in ends) else kind
    key = kind, words[2], words[3]
    if key not in classes:
        with errors_at(f"{place}: bandwidth", TopologyError):
            bandwidth = parse_bandwidth(words[2])
        with errors_at(f"{place}: latency", TopologyError):
            latency_ps = parse_time_ps(words[3])
        name = "-".join(key)
        classes[key] = LinkClass(name=name, bandwidth=bandwidth, latency_ps=latency_ps)
    return *ends, key


def _node(place: str, field: str, word: str, nodes: int) -> int:
    return whole_number(place, field, word, TopologyError, 0, nodes - 1)
