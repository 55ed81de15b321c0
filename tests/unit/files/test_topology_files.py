"""Topology files: the shipped ones work, and every mistake is one error that says where."""

from pathlib import Path
from typing import Any

import pytest
from fuzz.seeds import EXPLICIT as LINKS
from networks import load_between

from stepsim import collective_time, simulate
from stepsim.base.errors import TopologyError
from stepsim.files.load import read_topology, topology_of, with_numbers
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology

SHIPPED = sorted((Path(__file__).parents[3] / "topologies").glob("*.toml"))

DIMENSIONS = """
name = "two"
source = "test"
[collective]
launch_latency = "3 us"
[[dimension]]
name = "inner"
kind = "switch"
size = 4
bandwidth = "100 GB/s"
latency = "25 ns"
[[dimension]]
name = "outer"
kind = "rail"
size = 3
bandwidth = "400 Gbps"
latency = "500 ns"
endpoint_latency = "1.5 us"
efficiency = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.toml"


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} must occur once"
    return text.replace(old, new)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_name_their_source_and_carry_jobs(path: Path) -> None:
    topology = read_topology(path)
    assert topology.name == path.stem
    assert topology.source.strip()
    assert topology_of(path.stem) == topology
    for npus in (2, 9, 24, 1024):
        if topology.grows or npus <= topology.npus:
            fitted = topology.fit(npus)
            assert fitted.npus >= npus
            there = load_between(fitted, 0, npus - 1)
            assert there.hops.sum() > 0


def test_dimension_files_are_read_in_full(file: Path) -> None:
    file.write_text(DIMENSIONS)
    inner = LinkClass(name="inner", bandwidth=100e9, latency_ps=25_000)
    outer = LinkClass(
        name="outer",
        bandwidth=50e9,
        latency_ps=500_000,
        endpoint_latency_ps=1_500_000,
        efficiency=0.5,
    )
    assert outer.capacity == 25e9
    assert read_topology(file) == NestedTopology(
        name="two",
        source="test",
        dimensions=(
            Dimension(kind=DimensionKind.SWITCH, size=4, link=inner),
            Dimension(kind=DimensionKind.RAIL, size=3, link=outer),
        ),
        launch_latency_ps=3_000_000,
    )


def test_a_users_file_needs_no_source(file: Path) -> None:
    file.write_text(edited(DIMENSIONS, 'source = "test"\n', ""))
    assert read_topology(file).source == ""


def test_auto_size_starts_with_two_blocks_and_grows(file: Path) -> None:
    file.write_text(edited(DIMENSIONS, "size = 3", 'size = "auto"'))
    topology = read_topology(file)
    assert (topology.grows, topology.npus) == (True, 8)
    assert topology.fit(17).npus == 20


def test_links_run_both_ways_unless_oneway(file: Path) -> None:
    file.write_text(LINKS)
    topology = read_topology(file)
    assert (topology.npus, topology.node_size) == (2, 2)
    assert topology.link_counts() == (4,)
    back = '[[link]]\nfrom = "npu1"\nto = "npu0"\nlink_class = "cable"\noneway = true\n'
    file.write_text(LINKS + back)
    topology = read_topology(file)
    assert topology.link_counts() == (5,)
    ends = [tuple(load_between(topology, s, 1 - s).hops[0]) for s in (0, 1)]
    assert ends == [(2,), (1,)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "two"\n', "", "name is missing"),
        ('name = "two"', "name = 2", "name is 2: expected a text"),
        ('kind = "rail"\n', "", "dimension[1]: kind"),
        ('"100 GB/s"', '"100"', "dimension[0].bandwidth: '100' has no unit"),
        ('"100 GB/s"', "100", "dimension[0].bandwidth: 100 has no unit: expected a text in quotes"),
        ('"400 Gbps"', '"-400 Gbps"', "dimension[1].bandwidth: '-400 Gbps'"),
        ('"25 ns"', '"-25 ns"', "dimension[0].latency: '-25 ns'"),
        ('"1.5 us"', '"soon"', "dimension[1].endpoint_latency: 'soon'"),
        ('"3 us"', '"3"', "collective.launch_latency: '3' has no unit"),
        ("= 0.5", "= 1.5", "outer: efficiency is 1.5"),
        ("= 0.5", "= 0", "outer: efficiency is 0"),
        ('"rail"', '"rails"', "dimension[1].kind is 'rails': expected one of ring, "),
        ("size = 3", "size = 3\nspeed = 9", "dimension[1]: unknown key 'speed'"),
        ('source = "test"', 'source = "test"\ncolour = "red"', "unknown key 'colour'"),
        ("size = 4", 'size = "auto"', "dimension[0] (inner): size is 'auto': expected a number"),
        ("size = 4", "size = 0", "dimension[0] (inner): size is 0: expected a positive"),
        ("size = 4", "size = 4.5", "dimension[0].size"),
        (
            "size = 4",
            'size = "many"',
            "dimension[0] (inner): size is 'many': expected a positive integer or",
        ),
        ("size = 4", "size = 4194304", "product of sizes is 12582912"),
        ('name = "outer"', 'name = "inner"', "names repeat: inner"),
        ('name = "outer"', 'name = "npus"', "dimension[1]: name is 'npus'"),
        ('name = "outer"', 'name = "a b"', "dimension[1]: name is 'a b'"),
        (
            'source = "test"',
            'source = "test"\nnpus = 4',
            "npus belongs to topologies made of [[link]]",
        ),
        ('source = "test"', 'source = "test"\nnpus_forward = true', "npus_forward"),
    ],
)
def test_mistakes_in_dimensions_are_named(old: str, new: str, said: str, file: Path) -> None:
    file.write_text(edited(DIMENSIONS, old, new))
    check_refused(file, said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("npus = 2\n", "", "npus"),
        ("npus = 2", "npus = 0", "npus is 0"),
        ("npus = 2", "npus = 3", "npu0 and npu2 are not connected"),
        ('to = "npu1"', 'to = "npu2"', "link[1]: to is 'npu2': expected npu0 to npu1"),
        ('from = "npu0"', 'from = "npu00"', "link[0]: from is 'npu00'"),
        ('to = "leaf"', 'to = "npu0"', "link[0]: a link joins npu0 to itself"),
        ('to = "leaf"\n', "", "link[0]: to"),
        ('name = "cable"', 'name = "wire"', "link[0]: link_class is 'cable': expected one of wire"),
        ('"1 GB/s"', '"1"', "link_class[0].bandwidth: '1' has no unit"),
        ("npus = 2", "npus = 2\nnode_size = 0", "node_size is 0"),
        (
            "[[link_class]]",
            '[[link_class]]\nname = "cable"\nbandwidth = "9 GB/s"\nlatency = "0 ns"\n'
            "[[link_class]]",
            "cable",
        ),
    ],
)
def test_mistakes_in_links_are_named(old: str, new: str, said: str, file: Path) -> None:
    file.write_text(edited(LINKS, old, new))
    check_refused(file, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "name"),
        (b'name = "x"\nsource = "y"\n', "[[dimension]] or [[link]]"),
        (b"name = \n", "TOML: Invalid value (at line 1"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "not a text file"),
        (
            DIMENSIONS.encode() + LINKS.partition("npus = 2")[2].encode(),
            "[[dimension]] or [[link]]",
        ),
    ],
    ids=["empty", "no tables", "no TOML", "binary", "both kinds"],
)
def test_files_of_another_form_are_refused(content: bytes, said: str, file: Path) -> None:
    file.write_bytes(content)
    check_refused(file, said)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    check_refused(tmp_path / "absent.toml", "No such file")
    check_refused(tmp_path, "folder")


def test_unknown_names_list_the_shipped_ones() -> None:
    with pytest.raises(TopologyError, match=r"no topology named 'hgx-h1000'.*hgx-h100.*ring"):
        topology_of("hgx-h1000")


def check_refused(path: Path, *said: str) -> None:
    """One TopologyError that names the file and says all of this."""
    with pytest.raises(TopologyError) as caught:
        read_topology(path)
    place, _, problem = str(caught.value).partition(": ")
    assert place == str(path)
    for each in said:
        assert each in problem


BASED = """
name = "mine"
base = "hgx-h100"

[[dimension]]
name = "nvlink"
kind = "switch"
size = 8
bandwidth = "450 GB/s"
latency = "25 ns"

[[dimension]]
name = "fabric"
kind = "rail"
size = "auto"
bandwidth = "400 Gbps"
latency = "500 ns"
"""
JOB: dict[str, Any] = {"npus": 64, "tp": 8, "pp": 2, "chunks": 1, "microbatch_size": 1}
JOB |= {"global_batch": 32, "sequence": 4096}


def test_a_file_with_a_base_is_the_machine_where_it_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BASED)
    shipped, mine = topology_of("hgx-h100"), topology_of(path)
    assert mine.library == shipped.library
    assert mine.launch_latency_ps == shipped.launch_latency_ps
    efficient = [[link.efficiency for link in each.link_classes] for each in (mine, shipped)]
    assert efficient[0] == efficient[1]
    path.write_text(BASED.replace('"rail"', '"rail"\nefficiency = 0.5'))
    assert topology_of(path).link_classes[1].efficiency == 0.5
    path.write_text(BASED.replace("hgx-h100", "hgx-h101"))
    with pytest.raises(TopologyError, match=r"mine\.toml: no topology named 'hgx-h101'"):
        topology_of(path)


def test_ideal_links_are_told_and_have_no_range(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BASED.replace('base = "hgx-h100"', 'device = "h100"'))
    ideal, based = (simulate("llama-3-8b", name, **JOB).report for name in (path, "hgx-h100"))
    assert ideal.throughput is not None
    assert based.throughput is not None
    assert (ideal.throughput.low_s, based.throughput.low_s is None) == (None, False)
    said = [text for text in ideal.warnings if text.startswith("mine: ideal links, ")]
    assert len(said) == 1
    assert ideal.step_time_ps < based.step_time_ps


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-a100", "gb200-nvl72", "dgx-v100", "hgx-b300"])
def test_nodes_of_every_machine_can_be_smaller(name: str) -> None:
    smaller = with_numbers(topology_of(name), {"node_size": "4"})
    assert smaller.node_size == 4
    assert smaller.fit(32).npus == 32
    with pytest.raises(TopologyError, match="node_size is '0': expected 1 to "):
        with_numbers(topology_of(name), {"node_size": "0"})
    with pytest.raises(TopologyError, match="the nodes of topology tpu-v4 have a shape"):
        with_numbers(topology_of("tpu-v4"), {"node_size": "4"})


def test_rails_can_be_oversubscribed() -> None:
    """Leaves of 32: below 256 GPUs nothing crosses a spine, beyond that less gets through."""
    steps = [
        collective_time(
            with_numbers(topology_of("hgx-h100"), numbers).fit(1024), "all_to_all", 1 << 28, ranks
        )
        for ranks in (range(0, 256, 8), range(0, 1024, 8))
        for numbers in ({}, *({"fabric.oversubscription": n} for n in ("1", "4")))
    ]
    assert steps[0] == steps[1] == steps[2]
    assert steps[3] <= steps[4] < 1.01 * steps[3] < steps[5]
