"""The batch evaluator: shipped jobs, columns, and what it refuses."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import collective, few, row, uniform_workload
from jobs import make_batch
from pairs import in_turn

import stepsim
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase
from stepsim.base.errors import PlanError, SimulationError
from stepsim.base.structs import replace
from stepsim.core.actions import (
    CommNumbers,
    forward_tasks,
)
from stepsim.explore.batch.evaluation import Batch
from stepsim.face.steps import simulate
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Work, Workload
from stepsim.workload.scaling import ComputeScale

ROOT = Path(__file__).resolve().parents[3]
GPT = ROOT / "workloads" / "gpt_tp4.txt"
WORKLOADS = sorted((ROOT / "workloads").glob("*.txt"))
TOPOLOGIES = sorted(path.stem for path in (ROOT / "topologies").glob("*.toml"))
TIMES = ("step_time_ps", "pipeline_time_ps", "bubble_fraction")


def check_equal(batch: Batch, columns: dict[str, Any], at: list[dict[str, Any]]) -> None:
    """Every scenario against a run with the arguments in `at`."""
    found, totals = batch.evaluate(columns, parts=True), batch.evaluate(columns)
    for name in TIMES:
        assert np.array_equal(getattr(totals, name), getattr(found, name)), name
    for i, options in enumerate(at):
        report = simulate(**options).report
        for name in TIMES:
            assert getattr(found, name)[i] == getattr(report, name), name
        assert found.parts_ps[i].tolist() == list(report.breakdown_ps.values())


@pytest.mark.parametrize(
    ("file", "topology"),
    few(product(WORKLOADS, TOPOLOGIES), *in_turn(WORKLOADS, ("hgx-h100", "dgx-v100", "ring"))),
)
def test_shipped_jobs(file: Path, topology: str) -> None:
    job: dict[str, Any] = {"workload": stepsim.load_workload(file), "topology": topology}
    if topology == "dgx-v100":  # no two of its eight positions are alike: eight times the tasks
        job |= {"microbatches": 2}
    batch = make_batch(**job)
    scales = [1.0, 0.37, 2.0]
    columns = {"compute_scale": scales, "host_overhead": [0, 250_000_000, 1]}
    at = [
        {"compute_scale": ComputeScale(forward=s, input_grad=s, weight_grad=s), "host_overhead": h}
        for s, h in zip(scales, ["0 ns", "250 us", "1 ps"], strict=True)
    ]
    check_equal(batch, columns, [job | each for each in at])


def two_layers() -> Workload:
    workload = uniform_workload(forward=1000, backward=2000, pp=2, microbatches=4)
    blocks = [replace(block, layers=block.layers * 2) for block in workload.microbatches]
    return replace(workload, microbatches=tuple(blocks))


def small(**options: Any) -> Batch:
    return make_batch(two_layers(), "hgx-h100", **options)


def test_launches_that_compute_shares_out_are_part_of_the_graph() -> None:
    """Rows that reduce their gradients one by one have launches by their share of the compute."""
    workload = two_layers().with_works(
        lambda phase, work: (
            replace(work, host_ps=700, comms=(collective(1000, Group.DP),))
            if phase is Phase.WEIGHT_GRAD
            else work
        )
    )
    batch = make_batch(workload, "hgx-h100")
    assert "launches are shared out" in batch.fixed
    assert not make_batch(two_layers(), "hgx-h100").fixed
    with pytest.raises(PlanError, match="launches are shared out"):
        batch.evaluate({"compute_scale.input_grad": [0.5]})


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "fabric.bandwidth": rng.uniform(1e9, 1e11, 5000),
        "nvlink.latency": rng.integers(0, 10**7, 5000),
    }
    batch = make_batch(GPT, "hgx-h100")
    whole = batch.evaluate(columns, parts=True)
    monkeypatch.setattr("stepsim.explore.batch.evaluation._TOTALS_AT_ONCE", 17)
    monkeypatch.setattr("stepsim.explore.batch.evaluation._TIMES_AT_ONCE", 31)
    parted = batch.evaluate(columns, parts=True)
    for name in (*TIMES, "parts_ps"):
        assert np.array_equal(getattr(whole, name), getattr(parted, name)), name
    assert (whole.parts_ps.sum(axis=1) == whole.step_time_ps).all()
    assert np.array_equal(batch.evaluate(columns).step_time_ps, whole.step_time_ps)


def _curves() -> Iterator[MeasuredCurve]:
    """A time for every collective over groups of 4 to 16 ranks in as many nodes."""
    for kind, (ranks, nodes) in product(CollectiveKind, [(4, 4), (8, 8), (16, 16)]):
        yield MeasuredCurve(
            machine="m",
            source="run",
            kind=kind,
            ranks=ranks,
            nodes=nodes,
            sizes=(1, 1 << 40),
            times_ps=(10**4, 10**4 << 40),
        )


@pytest.mark.parametrize(("topology", "measured"), [("hgx-h100", False), ("dgx-v100", True)])
def test_scenarios_that_a_communication_cannot_tell_apart_are_what_each_is_alone(
    topology: str, measured: bool
) -> None:
    """Combinations of few values, in which every communication is priced a few times only."""
    axes: dict[str, list[float]] = {
        "nvlink.bandwidth": [1e11, 4.5e11, 9e11],
        "fabric.bandwidth": [12.5e9, 100e9],
        "fabric.latency": [0, 10**7],
        "size.ep": [0.5, 1],
        "compute_scale": [0.5, 1],
    }
    values = np.meshgrid(*axes.values(), indexing="ij")
    columns = {name: each.ravel() for name, each in zip(axes, values, strict=True)}
    job: dict[str, Any] = {"microbatches": 2}
    if measured:
        job["comm_table"] = CommTable(source="run", curves=tuple(_curves()))
    batch = make_batch(ROOT / "workloads" / "moe_128.txt", topology, **job)
    assert any(each.alone_ps for each in batch.table.comms.values()) == measured
    together = batch.evaluate(columns, parts=True)
    assert len(set(together.step_time_ps.tolist())) > 20
    for i in range(0, 48, 5):
        alone = batch.evaluate({name: column[[i]] for name, column in columns.items()}, parts=True)
        assert alone.step_time_ps[0] == together.step_time_ps[i]
        assert alone.bubble_fraction[0] == together.bubble_fraction[i]
        assert alone.parts_ps[0].tolist() == together.parts_ps[i].tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"fabric.speed": [1]}, "unknown column 'fabric.speed': expected nvlink.bandwidth, "),
        (
            {"fabric.bandwidth": [1, 2], "launch_latency": [1, 2, 3]},
            r"columns have \[2, 3\] values",
        ),
        ({"fabric.bandwidth": [1e9, 0.0]}, "bandwidth is 0.0 in a scenario: expected above 0"),
        (
            {"fabric.efficiency": [1.1]},
            "efficiency is 1.1 in a scenario: expected above 0, at most",
        ),
        ({"fabric.latency": [-1]}, "latency_ps is -1.0 in a scenario: expected 0 ps"),
        ({"compute_scale": [0.0]}, "compute scale is 0.0 in a scenario"),
    ],
)
def test_impossible_columns(columns: dict[str, list[float]], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{message}"):
        small().evaluate(columns)


def test_contention_is_no_batch() -> None:
    with pytest.raises(PlanError, match=r"^contention is fair: times are then no sums"):
        small(contention="fair")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schedule": "auto-zb"}, "auto-zb searches for its order by them"),
        ({"schedule": "dualpipe-v"}, "dualpipe-v mixes the tasks of fused pairs by them"),
        ({"pp": 1}, "layers are re-split"),
    ],
)
def test_compute_that_is_part_of_the_graph(options: dict[str, Any], why: str) -> None:
    batch = small(**options, compute_scale=ComputeScale(forward=0.5))
    with pytest.raises(PlanError, match=f"^compute_scale cannot vary within a batch: {why}"):
        batch.evaluate({"compute_scale": [1.0, 2.0]})
    run = simulate(two_layers(), "hgx-h100", **options, compute_scale=ComputeScale(forward=0.5))
    assert batch.evaluate({}).step_time_ps[0] == run.report.step_time_ps


def test_steps_that_are_too_long() -> None:
    workload = uniform_workload(forward=2**61, backward=2**61, pp=2, microbatches=4)
    batch = make_batch(workload, "ideal")
    with pytest.raises(SimulationError, match="add up to more than"):
        batch.evaluate({})


def test_collectives_that_are_too_long() -> None:
    batch = make_batch(GPT, "hgx-h100")
    with pytest.raises(SimulationError, match="a collective takes more than"):
        batch.evaluate({"fabric.bandwidth": [1e10, 1e-12]})


def test_sizes_are_factors_on_bytes() -> None:
    batch = make_batch(GPT, "hgx-h100")
    nothing = {f"size.{axis}": [0.0, 1.0, 2.0] for axis in ParallelAxis}
    silent, same, double = batch.evaluate(nothing).step_time_ps.tolist()
    assert silent < same < double
    assert same == batch.evaluate({}).step_time_ps[0]


def test_collectives_due_at_one_row_are_all_awaited() -> None:
    ops = [
        CommOp(kind=CollectiveKind.ALL_REDUCE, group=Group.TP, axis=axis, size_bytes=8)
        for axis in (ParallelAxis.TP, ParallelAxis.EP)
    ]
    rows = [
        replace(row(10, 10), forward=Work(compute_ps=10, comms=(op,)), forward_lag=1) for op in ops
    ]
    comms = CommNumbers(alone=Plan(tp=2).alone)
    loss = forward_tasks(rows, comms, (0, 0, 1)).tasks[-1]
    assert loss.after == (1, 2, 3)


def test_the_network_of_a_model_that_waits_for_its_host_is_a_column() -> None:
    """Launches run beside exchanges, so another network changes those alone."""
    asked: dict[str, Any] = {"npus": 16, "tp": 8, "device": "b200", "sequence": 512}
    asked["microbatches"] = 1
    batch = make_batch("llama-3.2-1b", "hgx-h100", **asked)
    found = batch.evaluate({"nvlink.bandwidth": [25e9, 2e9]}).step_time_ps
    for bandwidth, step in zip(("25 GB/s", "2 GB/s"), found.tolist(), strict=True):
        slower = stepsim.load_topology("hgx-h100", numbers={"nvlink.bandwidth": bandwidth})
        assert simulate("llama-3.2-1b", slower, **asked).report.step_time_ps == step
    large = make_batch("llama-3.1-8b", "hgx-h100", npus=16, tp=2, microbatches=1)
    assert large.takes(["nvlink.bandwidth", "launch_latency"])
