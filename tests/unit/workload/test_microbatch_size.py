"""Microbatches of several samples: what follows the tokens grows, parameters do not."""

from pathlib import Path

import pytest
from helpers import row, uniform_workload

from stepsim import simulate
from stepsim.base.axes import ParallelAxis, Phase
from stepsim.base.errors import PlanError
from stepsim.files.load import workload_of
from stepsim.workload.rows import Workload
from stepsim.workload.scaling import enlarge_microbatches


def test_compute_and_activations_grow_and_parameters_do_not(moe: Path) -> None:
    before = workload_of(moe)
    after = enlarge_microbatches(before, 3)
    assert after.pp_comm_bytes == 3 * before.pp_comm_bytes
    assert after.per_step == before.per_step
    for new, old in zip(after.rows(), before.rows(), strict=True):
        for (phase, grown), (_, work) in zip(new.works(), old.works(), strict=True):
            assert grown.compute_ps == 3 * work.compute_ps
            for op, was in zip(grown.comms, work.comms, strict=True):
                tokens = phase is not Phase.WEIGHT_GRAD and op.axis is not ParallelAxis.DP
                assert op.size_bytes == was.size_bytes * (3 if tokens else 1)


def test_the_microbatch_size_scales_compute_and_bytes(moe: Path) -> None:
    """Half as many microbatches of twice the size compute the same; their bubble is longer."""
    steps = [
        simulate(moe, "ideal", npus=128, global_batch=64, microbatch_size=samples)
        for samples in (1, 2, 4)
    ]
    busy = [max(each.busy for each in step.ranks.bubbles) for step in steps]
    reports = [step.report for step in steps]
    assert [report.microbatches for report in reports] == [16, 8, 4]
    times = [report.step_time_ps for report in reports]
    assert sorted(times) == times
    assert max(busy) == pytest.approx(min(busy), rel=1e-3)
    assert [report.settings.get("microbatch_size") for report in reports] == [None, "2", "4"]
    assert "taken as 1 sample" in " ".join(reports[1].warnings)


def test_equal_stages_follow_the_closed_form() -> None:
    """1F1B on free links takes (m + P - 1)(F + B), each in proportion to the samples."""
    work = uniform_workload(forward=1_000, backward=2_000, pp=4, microbatches=12)
    for samples in (1, 2, 3, 6):
        found = simulate(
            work, "ideal", microbatch_size=samples, global_batch=12, p2p="eager"
        ).report
        assert found.pipeline_time_ps == (12 // samples + 3) * 3_000 * samples


@pytest.mark.parametrize("samples", [0, -1, 2**60])
def test_sizes_that_cannot_be_are_refused(samples: int, moe: Path) -> None:
    with pytest.raises(PlanError, match="microbatch_size is"):
        enlarge_microbatches(workload_of(moe), samples)


def test_a_workload_without_tokens_is_refused() -> None:
    empty: Workload = uniform_workload(forward=0, backward=0, pp=1, microbatches=1)
    assert row(0, 0) in empty.microbatches[0].layers[0]
    with pytest.raises(PlanError, match="nothing in uniform follows the number of samples"):
        enlarge_microbatches(empty, 2)
