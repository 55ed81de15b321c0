"""One collective by itself: sizes, bandwidths, links, and what the command prints and writes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import replace
from stepsim.cli import make_app
from stepsim.face.steps import collective_time
from stepsim.files.load import topology_of
from stepsim.network.collectives import Algorithm, parse_algorithm
from stepsim.network.collectives.flows import bus_factor
from stepsim.network.one_collective import (
    CollectiveDocument,
    parse_ranks,
    parse_sizes,
    probe_algorithms,
    probe_collective,
)
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.show.figures.style import FigureStyle
from stepsim.views.collective import plot_collective

MIB = 1 << 20
WIRE = LinkClass(name="wire", bandwidth=50e9, latency_ps=500_000)
RAIL = LinkClass(name="rail", bandwidth=25e9, latency_ps=900_000)
NODES = NestedTopology(
    name="nodes",
    source="test",
    dimensions=(
        Dimension(kind=DimensionKind.SWITCH, size=4, link=WIRE),
        Dimension(kind=DimensionKind.RAIL, size=2, link=RAIL),
    ),
    launch_latency_ps=1_000_000,
)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", [8]),
        ("8..64:x2", [8, 16, 32, 64]),
        ("1KiB..20 KiB:x4", [1024, 4096, 16384]),
        ("2..9:x1.5", [2, 3, 4, 7]),
    ],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


@pytest.mark.parametrize("text", ["8..4", "0..8", "8..64:x1", "8..1TiB:x1.0001", "8..", "8 apples"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(StepsimError):
        parse_sizes(text)


def test_ranks() -> None:
    assert parse_ranks("0-3, 16") == (0, 1, 2, 3, 16)
    assert parse_ranks("5") == (5,)
    for text in ("3-1", "0-3,2", "", "a", "1--2", "-1", "0-99999999"):
        with pytest.raises(PlanError, match="ranks is"):
            parse_ranks(text)


@pytest.mark.parametrize("kind", [kind for kind in CollectiveKind if kind != "send_recv"])
def test_a_rank_alone_takes_no_time_and_sends_nothing(kind: CollectiveKind) -> None:
    """Its bandwidths are those of any collective without a time; its bus carries nothing."""
    row = probe_collective(NODES, kind, [1 << 20], [3]).rows[0]
    assert (row.time_ps, row.algbw, row.busbw, row.links) == (0, None, None, ())
    assert bus_factor(kind, 1) == 0


def test_ring_on_a_switch_works_at_the_rate_of_its_ports() -> None:
    """With free latency busbw is the bandwidth of a port, whatever the number of ranks."""
    free = LinkClass(name="wire", latency_ps=0, bandwidth=50e9)
    flat = NestedTopology(
        name="flat",
        source="",
        dimensions=(Dimension(kind=DimensionKind.SWITCH, size=8, link=free),),
    )
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        probe = probe_collective(flat, kind, [2**33], range(8), parse_algorithm("ring"))
        assert probe.rows[0].busbw == pytest.approx(50e9, rel=1e-6)
        assert probe.rows[0].links[0].utilisation == pytest.approx(1)


def test_rows_hold_time_bandwidth_and_links() -> None:
    probe = probe_collective(
        NODES, CollectiveKind.ALL_REDUCE, [MIB, 0], range(8), parse_algorithm("hierarchical")
    )
    nothing, row = probe.rows
    assert (nothing.time_ps, nothing.algbw, nothing.links) == (0, None, ())
    expected = collective_time(NODES, "all_reduce", MIB, range(8), row.algorithm)
    assert row.time_ps / 1e12 == expected
    assert row.algbw == pytest.approx(MIB / expected)
    assert row.latency_ps < row.time_ps
    links = {link.name: link for link in row.links}
    # in and out of a node 3/4 each, an eighth of the size both ways over each rail port
    assert links["wire"].busiest_bytes == pytest.approx(1.5 * MIB)
    assert links["rail"].busiest_bytes == pytest.approx(MIB / 4)
    assert (links["rail"].links, links["rail"].busiest) == (16, "npu0 to rail0")
    assert links["rail"].total_bytes == pytest.approx(16 * MIB / 4)
    assert links["wire"].utilisation < 1


def test_unknown_ranks_are_refused() -> None:
    for ranks in ([0, 0], [8], []):
        with pytest.raises(PlanError, match="ranks"):
            probe_collective(NODES, CollectiveKind.ALL_REDUCE, [8], ranks)


def test_all_algorithms_of_a_kind() -> None:
    found = probe_algorithms(NODES, CollectiveKind.ALL_TO_ALL, range(8))
    known = [
        Algorithm.RING,
        Algorithm.DIRECT,
        Algorithm.HIERARCHICAL,
        Algorithm.PER_DIMENSION,
    ]
    assert [each for each in found if each in known] == known
    assert not {Algorithm.NVLS, Algorithm.DOUBLE_BINARY_TREE} & {*found}


def test_figure_has_a_line_per_algorithm_and_auto_behind() -> None:
    sizes = parse_sizes("8..1GiB:x8")
    kind, ranks = CollectiveKind.ALL_REDUCE, tuple(range(8))
    probes = tuple(
        probe_collective(NODES, kind, sizes, ranks, parse_algorithm(name))
        for name in ("auto", "ring", "direct")
    )
    priced = CollectiveDocument(topology="nodes", kind=kind, ranks=ranks, algorithms=probes)
    left, right = plot_collective(priced, style=FigureStyle.SCREEN).axes
    assert [line.get_label() for line in left.lines] == ["auto", "ring", "direct"]
    assert len(right.lines) == 3
    times = left.lines[1].get_ydata()
    assert np.asarray(times).tolist() == [row.time_ps for row in probes[1].rows]
    one = replace(priced, algorithms=probes[:1])
    alone, _ = plot_collective(one, style=FigureStyle.SCREEN).axes
    chosen = {row.algorithm.replace("_", " ") for row in probes[0].rows}
    assert {line.get_label() for line in alone.lines} == chosen
    assert len(chosen) > 1


def run(*arguments: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(make_app(), ["collective", *arguments])
    return result.stdout, result.exception


def test_command_prints_a_table_and_links() -> None:
    out, error = run("--kind", "all_reduce", "--size", "64MiB", "--ranks", "0-15")
    assert error is None
    assert "all_reduce over 16 ranks" in out
    assert "busbw" in out
    assert "npu0 to nvlink0" in out
    assert max(map(len, out.splitlines())) <= 80


def test_command_compares_algorithms_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    asked = ["--algorithm", "ring,direct", "--algorithm", "hierarchical:ring,ring"]
    base = ["--kind", "all_gather", "--size", "1KiB..1MiB:x32", "--ranks", "0-15"]
    _, error = run(*base, *asked, "--json", str(path), "--plot", str(tmp_path / "out.png"))
    assert error is None
    assert (tmp_path / "out.png").stat().st_size > 10_000
    document = json.loads(path.read_text())
    names = [each["algorithm"] for each in document["algorithms"]]
    assert names == ["ring", "direct", "hierarchical:ring,ring"]
    for each in document["algorithms"]:
        assert [row["size_bytes"] for row in each["rows"]] == [1024, 32768, MIB]
        for row in each["rows"]:
            seconds = collective_time(
                "hgx-h100", "all_gather", row["size_bytes"], range(16), row["algorithm"]
            )
            assert row["time_ps"] / 1e12 == pytest.approx(seconds)
    stdout, _ = run(*base, *asked, "--json", "-")
    assert json.loads(stdout) == document


def test_command_takes_all_npus_and_all_algorithms() -> None:
    out, error = run("--kind", "reduce", "--size", "1MiB", "-t", "ring", "--algorithm", "all")
    assert error is None
    topology = topology_of("ring")
    assert f"over {topology.npus} ranks" in out
    assert "double_binary_tree" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "allreduce", "--size", "8"], "kind is 'allreduce': expected one of all_reduce"),
        (["--kind", "broadcast", "--size", "8", "--algorithm", "nvls"], "cannot use nvls"),
        (["--kind", "reduce", "--size", "8", "--algorithm", "x"], "'x' is not a valid"),
    ],
)
def test_command_refuses(arguments: list[str], words: str) -> None:
    _, error = run(*arguments)
    assert isinstance(error, StepsimError)
    assert words in str(error)


def test_messages_round_a_ring_take_as_long_as_one() -> None:
    """As nccl-tests has it, each rank sends to the next: the longest path counts."""

    def message_ps(ranks: Sequence[int]) -> int:
        return probe_collective(NODES, CollectiveKind.SEND_RECV, [MIB], ranks).rows[0].time_ps

    assert message_ps(range(3)) == message_ps([0, 1]) == message_ps([1, 0])
    assert message_ps(range(8)) == message_ps([3, 4])
