"""A recorded run is work for a step: the usual commands say of it what `what-if` says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import examples
from hypothesis import given, strategies as st
from traces import MadeRun

import stepsim
from stepsim.base.errors import PlanError
from stepsim.files.measured import load_trace
from stepsim.measured.calibration.calibration import message_topology
from stepsim.measured.layers import StageCost
from stepsim.measured.ready import ready_run
from stepsim.measured.work import RecordedWork
from stepsim.workload.plan import Plan

RUN = MadeRun(forward=(10, 8, 8, 12), backward=(20, 16, 16, 21), microbatches=8)
TIMES, ENDS = st.integers(1, 10**9), st.integers(-3, 10**6)
ORDERS = ("1f1b", "gpipe", "zb-h1", "interleaved:2", "zb-v")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return RUN.write(tmp_path / "nl8_hs1_run")


@st.composite
def stages(draw: st.DrawFn, *, is_end: bool) -> StageCost:
    """Layers, and of the first and the last stage ends that take longer or shorter than they do."""
    names = ("end_forward_ps", "end_backward_ps", "get_batch_ps", "loss_ps")
    ends: dict[str, Any] = {
        name: draw(ENDS if "end" in name else TIMES) for name in names if is_end
    }
    layers, share = draw(st.sampled_from([4, 8])), draw(st.floats(0, 1))
    took = draw(TIMES), draw(TIMES)
    return StageCost(
        layers=layers, forward_ps=took[0], backward_ps=took[1], **ends, weight_share=share
    )


@examples(60)
@given(st.tuples(*(stages(is_end=end) for end in (True, False, True))), st.sampled_from(ORDERS))
def test_no_order_makes_or_loses_work(costs: tuple[StageCost, ...], schedule: str) -> None:
    work = RecordedWork(
        source="made",
        plan=Plan(pp=3, microbatches=6),
        blocks=(costs,),
        schedule=None,
        topology=message_topology((), 8),
    )
    (block,) = work.workload(replace(work.options, schedule=schedule)).microbatches
    ran = [each.compute_ps for row in block.rows() for _, each in row.works()]
    whole = sum(each.layers * (each.forward_ps + each.backward_ps) for each in costs)
    whole += sum(
        each.end_forward_ps + each.end_backward_ps + each.get_batch_ps + each.loss_ps
        for each in costs
    )
    assert sum(ran) == pytest.approx(whole, abs=20), "a picosecond for each share"
    assert min(ran) >= 0


def test_studies_say_of_a_run_what_changes_say(folder: Path) -> None:
    def took(**change: Any) -> int:
        return stepsim.what_if(folder, **change).changed.report.step_time_ps

    compared = stepsim.compare(folder, schedules=ORDERS)
    assert {name: step.report.step_time_ps for name, step in compared.valid} == {
        name: took(schedule=name) for name in ORDERS
    }
    axes = {"microbatches": [4, 8], "schedule": ["1f1b", "zb-h1"]}
    swept = stepsim.sweep(folder, axes=axes, jobs=1).to_dict()["scenarios"]
    assert [each["step_time_ps"] for each in swept] == [
        took(microbatches=count, schedule=name) for count in (4, 8) for name in ("1f1b", "zb-h1")
    ]
    assert stepsim.noise(folder, samples=2).planned_ps == took()
    assert stepsim.sensitivity(folder).step_time_ps == took()
    assert stepsim.simulate(folder, host_overhead="0ps").report.step_time_ps < took()
    assert stepsim.simulate(folder, compute_scale=0.5).report.step_time_ps < 0.56 * took()


def test_without_names_its_own_order_stands_first(folder: Path) -> None:
    found = [name for name, _ in stepsim.compare(folder).valid]
    assert found[:3] == ["1f1b", "interleaved:2", "zb-h1"]
    gpipe = MadeRun(forward=(10, 8), backward=(20, 16), microbatches=4, schedule="gpipe")
    found = [name for name, _ in stepsim.compare(gpipe.write(folder / "run")).valid]
    assert found[:2] == ["gpipe", "1f1b"]


def test_a_run_keeps_its_ranks_and_an_order_its_microbatches(folder: Path) -> None:
    work = ready_run(load_trace(folder)).work()
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"npus": 8}, "a recorded run, whose ranks and batch stay"),
        ({"dp_overlap": True}, "of which times alone are known"),
        ({"schedule": work.schedule, "microbatches": 4}, "4 ranks and 8 microbatches: the run has"),
    )
    for more, said in refused:
        with pytest.raises(PlanError, match=said):
            work.workload(replace(work.options, **more))
