"""`stepsim calibrate nccl`: links found again that made the times, and what the command writes."""

import json
import re
from math import log2
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from stepsim import collective_time
from stepsim.base.errors import CalibrationError, OutputError, StepsimError
from stepsim.cli.calibrate import app
from stepsim.files.collectives.fits import topology_text, write_topology
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.collectives.times_csv import format_comm_table
from stepsim.files.load import read_topology
from stepsim.measured.calibration.curves import fit_curve
from stepsim.measured.calibration.lines import fit_regimes, least_distance
from stepsim.measured.calibration.link_classes import Pattern, Regime
from stepsim.measured.calibration.nccl import MachineFit, fit_machine, fit_nccl
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.workload.rows import CollectiveKind

KIB, MIB, US = 1 << 10, 1 << 20, 1e6
LAUNCH, NODE_STEP, FABRIC_STEP = 5 * US, 2 * US, 11 * US
NODE, FABRIC = 200e9, 20e9
AR = CollectiveKind.ALL_REDUCE
POWERS = tuple(1 << power for power in range(10, 34))


def curve(
    latency_ps: float,
    bandwidth: float,
    *,
    ranks: int,
    nodes: int = 1,
    kind: CollectiveKind = AR,
    sizes: tuple[int, ...] = POWERS,
    machine: str = "box",
) -> MeasuredCurve:
    """Times of latency + size / bandwidth."""
    times = [round(latency_ps + size / bandwidth * 1e12) for size in sizes]
    return MeasuredCurve(
        machine=machine,
        source=f"{ranks} over {nodes}",
        kind=kind,
        ranks=ranks,
        nodes=nodes,
        size_bytes=np.array(sizes, dtype=np.int64),
        time_ps=np.array(times, dtype=np.int64),
    )


def in_node(ranks: int, kind: CollectiveKind = AR) -> MeasuredCurve:
    """A ring inside a node."""
    steps = (2 if kind is AR else 1) * (ranks - 1)
    return curve(LAUNCH + steps * NODE_STEP, NODE * ranks / steps, ranks=ranks, kind=kind)


def over_nodes(nodes: int, per_node: int = 8) -> MeasuredCurve:
    """A tree over nodes, in latency, whose links carry what a ring's do."""
    ranks = nodes * per_node
    latency = LAUNCH + 2 * log2(nodes) * FABRIC_STEP + 2 * (per_node - 1) * NODE_STEP
    share = (1 if nodes == 2 else 2 * (ranks - 1) / ranks) / per_node
    return curve(latency, FABRIC / share, ranks=ranks, nodes=nodes)


WHOLE = [in_node(2), in_node(4), in_node(8), over_nodes(2), over_nodes(4), over_nodes(8)]


@pytest.fixture(scope="module")
def whole() -> MachineFit:
    return fit_machine("box", WHOLE)


@pytest.mark.parametrize("regime", Regime)
def test_the_links_that_made_the_times_are_found_again(whole: MachineFit, regime: Regime) -> None:
    latency = whole.latency(regime)
    assert latency is not None
    assert latency.pattern is Pattern.TREE
    for part, value in (
        (latency.launch, LAUNCH),
        (latency.node_step, NODE_STEP),
        (latency.fabric_step, FABRIC_STEP),
    ):
        assert part is not None
        assert part.value == pytest.approx(value, rel=0.01)
        assert part.residual < 0.01 * value
    for placement, bandwidth in (
        (NodePlacement.INTRA_NODE, NODE),
        (NodePlacement.INTER_NODE, FABRIC),
    ):
        capacity = whole.capacity(placement)
        assert capacity is not None
        assert capacity.bandwidth == pytest.approx(bandwidth, rel=1e-3)
        assert capacity.residual < 1e-3
        assert capacity.samples == 3
    assert whole.node_size == 8
    assert whole.unidentified == ()


def test_all_gathers_take_half_the_steps_of_an_all_reduce() -> None:
    kind = CollectiveKind.ALL_GATHER
    fit = fit_machine("box", [in_node(4, kind), in_node(8, kind)])
    latency = fit.latency(Regime.BULK)
    assert latency is not None
    assert latency.launch is not None
    assert latency.node_step is not None
    assert latency.launch.value == pytest.approx(LAUNCH, rel=0.01)
    assert latency.node_step.value == pytest.approx(NODE_STEP, rel=0.01)
    assert latency.launch.samples == 2


def test_one_group_tells_no_parts_of_its_latency() -> None:
    fit = fit_machine("box", [in_node(8)])
    latency = fit.latency(Regime.BULK)
    assert latency is not None
    assert (latency.launch, latency.node_step, latency.fabric_step) == (None, None, None)
    assert latency.together.value == pytest.approx(LAUNCH + 14 * NODE_STEP, rel=0.01)
    reasons = dict(fit.unidentified)
    assert "do not tell it from" in reasons["launch, bulk sizes"]
    assert reasons["step between nodes, bulk sizes"] == "no group measured has one"
    assert "over nodes" in reasons["bandwidth between nodes"]


def test_links_between_nodes_cannot_be_told_where_those_inside_are_slower() -> None:
    slow = curve(LAUNCH, NODE * 16 / 30, ranks=16, nodes=2)
    fit = fit_machine("box", [in_node(8), slow])
    assert fit.capacity(NodePlacement.INTER_NODE) is None
    assert "at least 13.33 GB/s" in dict(fit.unidentified)["bandwidth between nodes"]


def test_messages_alone_tell_bandwidth_but_no_latency() -> None:
    message = curve(LAUNCH, NODE, ranks=2, kind=CollectiveKind.SEND_RECV)
    fit = fit_machine("box", [message])
    found = fit.capacity(NodePlacement.INTRA_NODE)
    assert found is not None
    assert found.bandwidth == pytest.approx(NODE, rel=1e-3)
    assert fit.latencies == ()
    with pytest.raises(CalibrationError, match="latency of bulk sizes is not known"):
        topology_text(fit, name="box")


def test_few_sizes_are_not_fitted() -> None:
    fit = fit_machine("box", [curve(LAUNCH, NODE, ranks=8, sizes=POWERS[:3])])
    assert fit.curves[0].regimes == ()
    assert list(fit.rows()) == []
    assert fit.unidentified[0] == ("all_reduce over 8 ranks in 1 node", "fewer than four sizes")
    with pytest.raises(CalibrationError, match="bandwidth inside a node is not known"):
        topology_text(fit, name="box")


def test_a_change_of_protocol_is_found_at_its_size() -> None:
    small = {size: 10 + size / KIB / 4 for size in POWERS if size < 256 * KIB}
    large = {size: 60 + size / MIB * 8 for size in POWERS if size >= 256 * KIB}
    sizes = np.array(list(small | large), dtype=np.int64)
    times = np.array([round(t * US) for t in (small | large).values()], dtype=np.int64)
    first, second = fit_regimes(sizes, times)
    assert (first.last_bytes, second.first_bytes) == (128 * KIB, 256 * KIB)
    assert first.latency_ps / US == pytest.approx(10, rel=1e-3)
    assert second.latency_ps / US == pytest.approx(60, rel=1e-3)
    assert second.bandwidth == pytest.approx(MIB / 8e-6, rel=1e-3)


def test_one_line_is_not_split() -> None:
    assert len(fit_curve(in_node(8)).regimes) == 1


def test_a_few_bad_times_move_nothing() -> None:
    columns = np.stack([np.ones(9), np.arange(1.0, 10)], axis=1)
    values = 3 + 2 * np.arange(1, 10.0)
    values[[2, 7]] *= 4
    assert least_distance(columns, values) == pytest.approx([3, 2], rel=1e-4)


def test_no_factor_is_negative() -> None:
    columns = np.stack([np.ones(5), np.arange(1.0, 6)], axis=1)
    found = least_distance(columns, np.array([5.0, 4, 3, 2, 1]))
    assert found[1] == 0
    assert found[0] > 0


def test_the_topology_file_prices_what_was_measured(whole: MachineFit, tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    write_topology(whole, path)
    topology = read_topology(path).fit(64)
    assert topology.name == "box"
    assert topology.node_size == 8
    for each in WHOLE:
        per_node = each.ranks // each.nodes
        members = [node * 8 + rank for node in range(each.nodes) for rank in range(per_node)]
        algorithm = "ring" if each.nodes == 1 else "double_binary_tree"
        for size in (KIB, 64 * MIB):
            seconds = collective_time(topology, each.kind, size, members, algorithm)
            measured = each.time_ps[each.size_bytes == size]
            if each.nodes == 1 or size == KIB:
                assert seconds * 1e12 == pytest.approx(measured, rel=0.01), each.label


def test_nominal_bandwidths_make_efficiencies(whole: MachineFit, tmp_path: Path) -> None:
    nominal = {NodePlacement.INTRA_NODE: 250e9, NodePlacement.INTER_NODE: 25e9}
    path = tmp_path / "box.toml"
    write_topology(whole, path, nominal=nominal)
    classes = read_topology(path).link_classes
    assert [link.bandwidth for link in classes] == [250e9, 25e9]
    assert [link.efficiency for link in classes] == pytest.approx([0.8, 0.8], rel=1e-3)
    with pytest.raises(CalibrationError, match=r"200 GB/s measured.*nominal 150 GB/s"):
        topology_text(whole, name="box", nominal={NodePlacement.INTRA_NODE: 150e9})


def test_what_one_group_cannot_tell_apart_is_written_as_launch(tmp_path: Path) -> None:
    path = tmp_path / "eight.toml"
    write_topology(fit_machine('a "box"', [in_node(8)]), path)
    topology = read_topology(path)
    assert topology.launch_latency_ps / US == pytest.approx((LAUNCH + 14 * NODE_STEP) / US, 0.01)
    assert topology.link_classes[0].endpoint_latency_ps == 0
    assert 'measured on a "box".' in topology.source
    assert "Not known: bandwidth between nodes" in topology.source


def test_a_node_holds_what_was_measured_in_one() -> None:
    with pytest.raises(CalibrationError, match="node_size is 4: box has 8 ranks in a node"):
        fit_machine("box", [in_node(8)], 4)
    assert fit_machine("box", [in_node(8)], 16).node_size == 16


def test_machines_are_fitted_apart() -> None:
    other = curve(LAUNCH, NODE / 2, ranks=8, machine="other")
    fit = fit_nccl(CommTable(source="t", curves=(in_node(8), other)))
    assert [machine.machine for machine in fit.machines] == ["box", "other"]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A table with one outlier and a second machine."""
    spoilt = in_node(8)
    spoilt.time_ps[3] *= 7
    other = curve(LAUNCH, NODE / 2, ranks=8, machine="other")
    path = tmp_path / "measured.csv"
    path.write_text(format_comm_table(CommTable(source="t", curves=(spoilt, *WHOLE[:2], other))))
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["nccl", *map(str, arguments)], env={"COLUMNS": "80"})


def refused(*arguments: str | Path) -> str:
    error = call(*arguments).exception
    assert isinstance(error, StepsimError)
    return str(error)


def test_the_command_prints_links_curves_errors_and_outliers(measured: Path) -> None:
    result = call(measured, "--source", "box")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "box: nodes of 8"
    assert any(line.split()[:3] == ["intra_node", "200", "GB/s"] for line in lines)
    assert any(line.split()[:4] == ["bulk", "launch", "5", "us"] for line in lines)
    assert any(line.split()[:5] == ["all_reduce", "8", "1", "23", "1"] for line in lines)
    assert "not identified: bandwidth between nodes: " in result.stdout
    assert "all_reduce over 8 ranks in 1 node (box: 8 over 1)" in lines
    assert lines[-2:] == [
        "outliers left out: 1",
        "all_reduce over 8 ranks in 1 node (box: 8 over 1): 8 KiB in 231.5 us, 7.0 times what its "
        "neighbours say",
    ]
    assert max(len(line) for line in lines if "  " in line) <= 80


def test_the_command_writes_topology_table_and_json(measured: Path, tmp_path: Path) -> None:
    toml, table, out = (tmp_path / name for name in ("box.toml", "table.csv", "fit.json"))
    arguments = ("--source", "box", "-o", toml, "--table", table, "--json", out)
    assert call(measured, *arguments, "--node-bandwidth", "250 GB/s").exit_code == 0
    assert read_topology(toml).link_classes[0].efficiency == pytest.approx(0.8, rel=1e-3)
    curves = read_measurements([table]).curves
    assert [len(each.size_bytes) for each in curves] == [23, 24, 24]
    document = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert document["schema_version"] == 1
    assert [machine["machine"] for machine in document["machines"]] == ["box"]
    assert len(document["machines"][0]["rows"]) == 71
    assert document["machines"][0]["capacities"][0]["placement"] == "intra_node"
    assert document["outliers"][0]["size_bytes"] == 8 * KIB
    stdout = call(measured, "--source", "box", "--json", "-").stdout
    assert json.loads(stdout) == document


def test_every_size_can_be_shown(measured: Path) -> None:
    dense = tuple(range(MIB, 40 * MIB, MIB))
    table = CommTable(source="t", curves=(curve(LAUNCH, NODE, ranks=4, sizes=dense),))
    measured.write_text(format_comm_table(table))
    shown = [call(measured, *more).stdout for more in ((), ("--sizes",))]
    assert [len(re.findall(r"(?m)^ *\d+ MiB ", text)) for text in shown] == [6, 39]


def test_the_command_refuses_what_it_cannot_do(measured: Path, tmp_path: Path) -> None:
    toml = tmp_path / "out.toml"
    assert "2 machines: 'box', 'other'" in refused(measured, "-o", toml)
    assert "expected texts of" in refused(measured, "--source", "nothing")
    assert "latency is 'middle': expected one of" in refused(
        measured, "--source", "box", "-o", toml, "--latency", "middle"
    )
    assert "--kind is 'ring': expected one of all_reduce" in refused(measured, "--kind", "ring")
    assert "it is an input" in refused(measured, "--table", measured)
    assert "two outputs" in refused(measured, "--table", toml, "-o", toml)
    assert "does not exist" in refused(measured, "-o", tmp_path / "no" / "out.toml")
    assert isinstance(call(measured, "--table", tmp_path).exception, OutputError)
    assert not toml.exists()
