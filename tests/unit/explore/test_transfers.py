"""Transfers on links that are shared in time, in many scenarios at once."""

from pathlib import Path

import numpy as np
import pytest
from jobs import make_batch

from stepsim.engine.timeline import find_actors
from stepsim.explore.batch import Batch
from stepsim.network.placement import place
from stepsim.network.topology.nested import with_values
from stepsim.parallel.modes import Sharing

BANDWIDTHS = np.array([1e9, 2e10, 5e10, 3e11])


@pytest.fixture(scope="module")
def batch() -> Batch:
    workload = Path(__file__).parents[3] / "workloads" / "moe_128.txt"
    return make_batch(workload, "hgx-h100", shared=True, contention="fair", p2p="blocking")


def test_a_transfer_takes_as_long_in_columns_as_by_itself(batch: Batch) -> None:
    scenarios = batch.scenarios({"fabric.bandwidth": BANDWIDTHS})
    job = batch.job
    assert job.prices.sharing is Sharing.FAIR
    assert batch.table.transfers
    for number, bandwidth in enumerate(BANDWIDTHS.tolist()):
        network = with_values(batch.setting.topology, {"fabric.bandwidth": bandwidth})
        prices = job.prices.on(place(network, job.graph.plan, job.options.placement))
        _, contention = find_actors(job.graph, prices, job.slow, fold_ranks=True)
        assert contention
        for key, length in batch.table.transfers.items():
            flight = length.flight(scenarios)
            assert flight.same_flows.all()
            transfer = contention.transfers[key]
            assert flight.taken_ps[number] == transfer.duration_ps
            assert flight.level[:, number].tolist() == [each.level for each in transfer.phases]


def test_equal_transfers_have_one_length(batch: Batch) -> None:
    assert batch.flights
    distinct = set(batch.table.transfers.values())
    assert len(batch.flights.lengths) == len(distinct) < len(batch.table.transfers)


def test_another_algorithm_has_other_flows(batch: Batch) -> None:
    """A scenario whose size is none, or that takes another algorithm, is not of the job."""
    length = next(each for each in batch.table.transfers.values() if each.steps)
    scenarios = batch.scenarios({f"size.{length.comm.op.axis}": np.array([1.0, 0.0])})
    assert length.flight(scenarios).same_flows.tolist() == [True, False]


def test_scenarios_without_a_limit_on_links_are_not_of_the_job(batch: Batch) -> None:
    found = batch.evaluate({"fabric.bandwidth": np.array([5e10, np.inf])})
    assert found.apart is not None
    assert found.apart.tolist() == [True, False]
