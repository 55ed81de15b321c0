"""What is kept of steps that have run changes no number of those that follow."""

import pytest
from helpers import examples, two_levels
from hypothesis import given, strategies as st
from jobs import asked, totals_of
from random_jobs import Job, circumstances, jobs, networks

from stepsim.base.structs import replace
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import flows_of, followed, is_fixed, with_values

BANDWIDTHS = st.sampled_from([1e9, 3e9, 5e10, 4.5e11, float("inf")])
LATENCIES = st.sampled_from([0, 500, 90_000])


@given(job=jobs(), network=networks(), data=st.data())
@examples(8)
def test_prices_of_other_numbers_change_none(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    """Each step on a network of other numbers is what it is by itself."""
    chosen = data.draw(circumstances(job))
    chosen["contention"] = data.draw(st.sampled_from(["none", "siblings", "fair", "fair"]))
    options = asked(**job.options(), **chosen)
    names = [name for name in dict.fromkeys(followed(network)) if not is_fixed(network, name)]
    known: Known = {}
    for _ in range(3):
        values = {f"{name}.bandwidth": data.draw(BANDWIDTHS) for name in names}
        values |= {f"{name}.latency": data.draw(LATENCIES) for name in names}
        values["launch_latency"] = data.draw(LATENCIES)
        changed = with_values(network, values)
        alone = totals_of(job.workload, changed, options)
        assert totals_of(job.workload, changed, options, known=known) == alone


@pytest.mark.parametrize("other", [{"nodes": 3}, {}])
def test_networks_that_differ_in_more_than_numbers_are_told_apart(other: dict[str, int]) -> None:
    one = two_levels()
    numbers = {"launch_latency": 7.0}
    numbers |= {f"{link.name}.bandwidth": 5e9 for link in one.link_classes}
    alike = with_values(two_levels(**other), numbers)
    assert (flows_of(one) == flows_of(alike)) == (not other)
    assert flows_of(one, numbers=True) != flows_of(alike, numbers=True)
    assert flows_of(one) != flows_of(replace(two_levels(), algorithms=("ring",)))
