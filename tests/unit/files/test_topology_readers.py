"""ASTRA-sim network YAML and SimAI topology text: what they mean, and what is refused."""

from pathlib import Path

import pytest
from fuzz.seeds import SIMAI_NETWORK as SIMAI
from networks import load_between
from unit.files.test_topology_files import check_refused

from stepsim.files.load import read_topology
from stepsim.network.topology import DimensionKind, NestedTopology

ASTRA = """
# a comment
topology: [ Ring, FullyConnected, Switch ] # kinds
npus_count: [ 4, 2, 8 ]
bandwidth: [ 50.0, 25, 12.5 ]  # GB/s
latency: [ 500.0, 700, 0 ]     # ns
"""


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_astra_networks_are_read_in_full(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path / "net.yml", ASTRA))
    assert isinstance(topology, NestedTopology)
    kinds = [(d.kind, d.size, d.link.bandwidth, d.link.latency_ps) for d in topology.dimensions]
    assert kinds == [
        (DimensionKind.RING, 4, 50 * 2**30, 500_000),
        (DimensionKind.FULLY_CONNECTED, 2, 25 * 2**30, 700_000),
        (DimensionKind.RAIL, 8, 12.5 * 2**30, 0),
    ]
    assert topology.name == "net"


@pytest.mark.parametrize(
    "text",
    [
        ASTRA.replace("[ Ring, FullyConnected, Switch ]", "\n- Ring\n- FullyConnected\n- Switch"),
        ASTRA.replace("[ Ring, FullyConnected, Switch ]", "[ Ring,\n FullyConnected,\n 'Switch' ]"),
        "---\n" + ASTRA.replace("[ 500.0, 700, 0 ]", '\n ["500.0",700,\n 0]'),
    ],
)
def test_lists_may_be_written_in_other_ways(text: str, tmp_path: Path) -> None:
    first = read_topology(write(tmp_path / "net.yaml", ASTRA))
    assert read_topology(write(tmp_path / "net.yaml", text)) == first


def test_a_switch_innermost_joins_all(tmp_path: Path) -> None:
    text = "topology: [ Switch ]\nnpus_count: [ 4 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n"
    topology = read_topology(write(tmp_path / "net.yml", text))
    assert isinstance(topology, NestedTopology)
    assert topology.dimensions[0].kind is DimensionKind.SWITCH


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Ring", "Torus", "topology[0]: kind is 'Torus': expected one of Ring, FullyConnected"),
        ("[ 4, 2, 8 ]", "[ 4, 2 ]", "npus_count has 2 entries, topology 3"),
        ("[ 4,", "[ 0,", "npus_count[0]: value is '0': expected"),
        ("[ 4,", "[ four,", "npus_count[0]: value is 'four'"),
        ("[ 4,", "[ 4000000,", "npus_count: product"),
        ("50.0", "-50.0", "bandwidth[0]: value is '-50.0'"),
        ("50.0", "nan", "bandwidth[0]: value is 'nan': expected a number"),
        ("700", "-1", "latency[1]: value is '-1'"),
        ("latency", "delay", "unknown key 'delay': expected topology, npus_count"),
        ("latency: [ 500.0, 700, 0 ]", "", "latency is missing"),
        ("latency", "bandwidth", "line 6: bandwidth occurs twice"),
        ("0 ]     # ns", "0", "not valid YAML: while parsing a flow sequence"),
        ("topology:", "topology", "line 4"),
        ("[ 4, 2, 8 ]", "[ 4, 2, [8] ]", "line 4: expected 'key: [values]'"),
    ],
)
def test_mistakes_in_astra_networks_are_named(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    check_refused(write(tmp_path / "net.yml", edited(ASTRA, old, new)), said)


def test_simai_topologies_are_read_in_full(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path / "simai", SIMAI))
    assert (topology.npus, topology.node_size) == (4, 2)
    classes = [(link.name, link.bandwidth, link.latency_ps) for link in topology.link_classes]
    assert classes == [("nvlink", 360e9, 25_000), ("nic", 50e9, 500_000)]
    assert topology.link_counts() == (8, 8)
    load = load_between(topology, [0, 0], [1, 3])
    assert load.hops.tolist() == [[0, 2], [2, 0]]
    assert {topology.link_ends(int(link))[1] for link in load.links} == {
        *("npu1", "npu3", "nvswitch4", "switch6")
    }


def test_classes_that_join_the_same_things_are_told_apart_by_rates(tmp_path: Path) -> None:
    text = edited(SIMAI, "0 6 400Gbps", "0 6 200Gbps")
    names = [link.name for link in read_topology(write(tmp_path / "simai", text)).link_classes]
    assert names == ["nvlink", "nic-200Gbps-0.0005ms", "nic-400Gbps-0.0005ms"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("7 2 2 1 8 H100", "7 2 2 1 9 H100", "line 1: links is 9: the file has 8"),
        ("7 2 2 1 8 H100", "7 2 x 1 8 H100", "TOML"),
        ("7 2 2 1 8 H100", "3 2 2 1 8 H100", "line 1: 3 nodes"),
        ("7 2 2 1 8 H100", "7 0 2 1 8 H100", "line 1: GPUs per server is 0"),
        ("4 5 6\n", "4 5\n", "line 2: 2 switches listed: line 1 says 3"),
        ("4 5 6\n", "4 5 5\n", "line 2: switch 5 is listed twice"),
        ("0 4 2880Gbps", "0 0 2880Gbps", "line 3: a link joins 0 to itself"),
        ("0 4 2880Gbps", "0 9 2880Gbps", "line 3: to is '9': expected a whole number from 0 to 6"),
        ("0 4 2880Gbps", "-1 4 2880Gbps", "line 3: from is '-1'"),
        ("0 4 2880Gbps", "0 4 0Gbps", "line 3: bandwidth: '0Gbps'"),
        ("0.000025ms 0\n1", "0.000025 0\n1", "line 3: latency: '0.000025' has no unit"),
        ("0.000025ms 0\n1", "0.000025ms\n1", "line 3: 4 fields"),
        ("0 6 400Gbps", "0 4 400Gbps", "npu0 and npu2 are not connected"),
    ],
)
def test_mistakes_in_simai_topologies_are_named(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    check_refused(write(tmp_path / "simai", edited(SIMAI, old, new)), said)


@pytest.mark.parametrize("name", ["absent.yml", "absent"])
def test_absent_files_are_named(name: str, tmp_path: Path) -> None:
    check_refused(tmp_path / name, "No such file")


def test_simais_own_files(shared: Path) -> None:
    folder = shared / "reference" / "topologies"
    spectrum, alibaba = (
        read_topology(next(folder.glob(f"{name}*"))) for name in ("Spectrum", "Alibaba")
    )
    assert (spectrum.npus, spectrum.link_counts()) == (16, (32, 32, 16))
    assert (alibaba.npus, alibaba.link_counts()) == (16, (32, 64, 512))
    for topology in (spectrum, alibaba):
        assert [link.name for link in topology.link_classes] == ["nvlink", "nic", "fabric"]
    assert load_between(spectrum, 0, 8).hops.tolist() == [[0, 2, 0]]
    assert load_between(alibaba, 0, 8).loads.tolist() == [0.5] * 4
