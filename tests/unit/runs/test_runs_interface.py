"""Measured runs from Python, and what a run's operations and a calibration's messages are."""

from pathlib import Path

import pytest
from traces import MadeRun

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, PlanError
from stepsim.base.structs import replace
from stepsim.measured.calibration.calibration import Calibration, LinkFit, message_curve
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.run import OpKind
from stepsim.measured.step_ops import StepOp, operations
from stepsim.network.measured_times import MeasuredCurve
from stepsim.runs.validate import Errors, Source, Validation, compared

RUN = MadeRun(forward=(10, 12), backward=(20, 21), microbatches=6)


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in stepsim.__all__ if not hasattr(stepsim, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'simulte'"):
        _ = stepsim.simulte


def test_runs_by_path_or_loaded_once(tmp_path: Path) -> None:
    one, other = (replace(RUN, microbatches=count).write(tmp_path / str(count)) for count in (6, 8))
    file = tmp_path / "machine.toml"
    stepsim.write_calibration(stepsim.calibrate([one]), file)
    loaded = stepsim.load_run(other)
    found = stepsim.validate([loaded, str(other)], calibration=file)
    assert found.runs[0].pipeline == found.runs[1].pipeline
    assert not found.exceeds(0.01)
    assert found.exceeds(0)
    again = stepsim.simulate_run(other, calibration=stepsim.read_calibration(file))
    assert again.report.pipeline_time_ps == found.runs[0].pipeline.simulated_ps
    slower = stepsim.what_if(one, bandwidth={"intra_node": "1MB/s"})
    assert slower.speedup < 1
    with pytest.raises(PlanError, match="times is 'mode': expected one of median, mean"):
        stepsim.simulate_run(other, times="mode")


def step_op(stage: int, size: int, *times: int, kind: OpKind = OpKind.DP_ALLREDUCE) -> StepOp:
    first = 4 * stage
    return StepOp(
        stage=stage,
        kind=kind,
        label=kind.name.lower(),
        size_bytes=size,
        times_ps=times,
        wait_ps=0,
        group=(first, first + 1) if kind is OpKind.DP_ALLREDUCE else (first,),
    )


def test_groups_that_do_the_same_are_one_operation() -> None:
    """Alike in bytes to a hundredth; the optimizer by the gradients of its stage."""
    ops = [
        step_op(0, 1000, 10, 14),
        step_op(0, 0, 5, kind=OpKind.OPTIMIZER),
        step_op(1, 1009, 12),
        step_op(1, 0, 7, kind=OpKind.OPTIMIZER),
        step_op(2, 2000, 30),
        step_op(2, 0, 9, kind=OpKind.OPTIMIZER),
    ]
    found = operations(ops, node_size=8)
    assert [each.times_ps for each in found] == [(10, 14, 12), (5, 7), (30,), (9,)]
    assert [each.duration_ps for each in found] == [12, 6, 30, 9]
    assert [each.size_bytes for each in found] == [1000, 1000, 2000, 2000]
    assert [each.nodes(5) for each in operations(ops[:3:2], node_size=5)] == [1, 2]


def test_spread_of_samples() -> None:
    each = compared("x", Source.PREDICTION, 10, 10, (9, 10, 12))
    assert each.spread == pytest.approx((-0.1, 0.2))
    assert replace(each, samples_ps=()).spread == (0, 0)


def test_a_time_of_0_has_no_error_that_counts() -> None:
    row, other = (compared("x", Source.PREDICTION, 10, measured_ps) for measured_ps in (0, 8))
    assert Validation.of((), (row,)).errors == {}
    found = Validation.of((), (row, other)).errors
    assert found["step (prediction)"] == Errors(mean=0.25, largest=0.25, count=1)


def link(placement: NodePlacement, bandwidth: float = 1e9) -> LinkFit:
    return LinkFit(
        placement=placement,
        latency_ps=5_000_000,
        bandwidth=bandwidth,
        residual=0.0,
        samples=1,
        sizes=(),
    )


def test_messages_of_runs_replace_those_of_benchmarks() -> None:
    sizes = (1024, 2048)
    benchmarks = [
        MeasuredCurve(
            machine="m",
            source="s",
            kind=kind,
            ranks=2,
            nodes=nodes,
            sizes=sizes,
            times_ps=sizes,
        )
        for kind in (CollectiveKind.SEND_RECV, CollectiveKind.ALL_REDUCE)
        for nodes in (1, 2)
    ]
    table = Calibration(
        sources=(),
        point_to_point=(link(NodePlacement.INTER_NODE),),
        collective=tuple(benchmarks),
    ).comm_table()
    assert table is not None
    assert table.time_ps(CollectiveKind.SEND_RECV, 2, 1, 2048) == 2048
    assert table.time_ps(CollectiveKind.ALL_REDUCE, 2, 2, 2048) == 2048
    for size in (1 << 10, 1 << 25, 3 << 28, 1 << 30, 1 << 32):
        modelled = link(NodePlacement.INTER_NODE).time_ps(size)
        assert table.time_ps(CollectiveKind.SEND_RECV, 2, 2, size) == pytest.approx(
            modelled, rel=2e-3
        )
    assert Calibration(sources=()).comm_table() is None
    with pytest.raises(CalibrationError, match=r"1 GiB takes .* at most"):
        message_curve(link(NodePlacement.INTRA_NODE, 1.0))
