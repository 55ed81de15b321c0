"""Estimates of what other traffic costs, by hand: gradients of two stages over one cable."""

import pytest
from helpers import collective, row
from networks import cabled

import stepsim
from stepsim.face import Result
from stepsim.network.topology import LinkClass
from stepsim.workload.rows import Group, MadeFor, Microbatch, Phase, Role, StepItem, Work, Workload

MB, MS = 10**6, 10**9
CABLE = [("npu0", "a"), ("npu1", "a"), ("npu2", "b"), ("npu3", "b"), ("a", "b")]


def reduced() -> Workload:
    """Two stages on NPUs 0, 2 and 1, 3: forwards of 1 us, then 1 MB of gradients."""
    forward = row(10**6, 10**6)
    item = StepItem(
        name="gradients",
        phase=Phase.WEIGHT_GRAD,
        work=Work(comms=(collective(MB, Group.DP),)),
        role=Role.GRADIENTS,
    )
    block = Microbatch(embedding=(), layers=((forward,), (forward,)), head=())
    made_for = MadeFor(tp=1, pp=2, npus=4)
    return Workload(source="t", made_for=made_for, microbatches=(block,), per_step=(item,))


def run(contention: str) -> Result:
    """Both stages send their gradients from left to right and back over one cable."""
    network = cabled(4, CABLE, [LinkClass(name="cable", bandwidth=1e9)], node_size=2)
    return stepsim.simulate(
        reduced(),
        network,
        rank_order="pp-tp-dp",
        contention=contention,
        algorithm="all_reduce=ring",
        stage_rows="every",
    )


def test_reductions_of_two_stages_are_no_siblings_and_are_warned_about() -> None:
    siblings, fair = run("siblings"), run("fair")
    assert fair.report.step_time_ps > 1.8 * siblings.report.step_time_ps
    (text,) = [each for each in siblings.report.warnings if " meets " in each]
    assert text.startswith("dp all_reduce of 976.6 KiB meets that of other stages on its links")
    worth = float(text.partition("longer, ")[2].partition("%")[0]) / 100
    estimate = siblings.report.step_time_ps * (1 + worth)
    assert estimate == pytest.approx(fair.report.step_time_ps, rel=0.01)
    assert not [each for each in fair.report.warnings if " meets " in each]
