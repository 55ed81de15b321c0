"""What holds in every run, whatever the job."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers import examples, few
from hypothesis import given, strategies as st
from invariants import check_timeline
from random_jobs import Job, jobs, networks

from stepsim.base.axes import Part
from stepsim.face.steps import simulate
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import followed, is_fixed, with_values


@examples(40)
@given(job=jobs(), network=networks(), data=st.data())
def test_a_faster_link_class_is_never_slower(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([n for n in followed(network) if not is_fixed(network, n)]))
    link = next(each for each in network.link_classes if each.name == name)
    faster = {f"{name}.bandwidth": link.bandwidth * 2, f"{name}.latency": link.latency_ps // 2}
    better = with_values(network, faster)
    slow, quick = (simulate(job.workload, each, **job.options()) for each in (network, better))
    assert quick.report.step_time_ps <= slow.report.step_time_ps


TOPOLOGIES = ("hgx-h100", "hgx-a100", "ring", "ideal")


@pytest.mark.parametrize(
    ("name", "p2p", "topology"),
    few(
        product(("moe_128", "gpt_tp4"), ("eager", "blocking"), TOPOLOGIES),
        ("moe_128", "eager", "hgx-h100"),
        ("gpt_tp4", "blocking", "hgx-h100"),
    ),
)
def test_seed_timelines_hold_every_dependency(
    name: str, p2p: str, topology: str, workloads: Path
) -> None:
    size: dict[str, Any] = {"npus": 32, "pp": 4} if name == "gpt_tp4" else {}
    result = simulate(workloads / f"{name}.txt", topology, p2p=p2p, fold_ranks=False, **size)
    check_timeline(result.timeline)
    assert (result.ranks.breakdown.sum(axis=1) == result.report.step_time_ps).all()
    assert result.report.breakdown_ps.keys() == {part.key for part in Part}
    assert sum(result.report.breakdown_ps.values()) == result.report.step_time_ps
