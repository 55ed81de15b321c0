"""One job has one step time: by events, by columns, folded, rank by rank, and as a batch."""

import pytest
from helpers import few
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import make_batch
from random_jobs import Job, jobs, networks

from stepsim.face import simulate
from stepsim.network.topology import Topology


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", few([15, 1000], 15))
def test_every_way_gives_the_same_picosecond(count: int) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(job=jobs(), network=networks(), slow=st.sampled_from([None, "0:1.3"]))
    def check(job: Job, network: Topology, slow: str | None) -> None:
        options = {**job.options(), "slow": slow}
        steps_ps = {
            f"{engine} {fold}": simulate(
                job.workload, network, **options, engine=engine, fold_ranks=fold
            ).report.step_time_ps
            for engine in ("simpy", "levels")
            for fold in (True, False)
        }
        for coalesce in (True, False):
            batch = make_batch(job.workload, network, coalesce=coalesce, **options)
            steps_ps[f"batch {coalesce}"] = int(batch.evaluate({}).step_time_ps[0])
        assert len(set(steps_ps.values())) == 1, steps_ps

    check()
