"""The task graph against a plain writing of it that shares none of its code."""

from pathlib import Path
from typing import Any

import pytest
from helpers import few
from hypothesis import HealthCheck, given, settings, strategies as st
from jobs import short_job
from plain_step import plain_step
from random_jobs import Job, circumstances, jobs, networks

import stepsim
from stepsim.base.structs import replace
from stepsim.files.asked import read_inputs
from stepsim.files.load import topology_of
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.parallel.schedules import BUILDERS
from stepsim.step.prepared import prepare
from stepsim.workload.rows import Workload


def check_step(source: Workload | Path, network: Topology, **typed: Any) -> None:
    """SimPy and the columns give the plain step's time, folded or rank by rank."""
    job = read_inputs(source, network, typed)
    plain_ps = plain_step(job.workload, job.topology, job.options).step_time_ps()
    known: Known = {}
    found = {}
    for engine in ("simpy", "levels"):
        ready = prepare(read_inputs(source, network, typed | {"engine": engine}), known=known)
        for fold in (True, False):
            found[engine, fold] = replace(ready, fold_ranks=fold).timeline().step_time_ps
    assert {*found.values()} == {plain_ps}, (plain_ps, found)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", few([30, 600], 30))
def test_random_jobs(count: int) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), job=jobs(), network=networks())
    def check(data: st.DataObject, job: Job, network: Topology) -> None:
        typed = job.options() | data.draw(circumstances(job))
        typed |= {
            "stage_rows": data.draw(st.sampled_from(["ends", "every"])),
            "contention": "none" if typed["contention"] == "fair" else typed["contention"],
        }
        check_step(job.workload, network, **typed)

    check()


@pytest.mark.parametrize("schedule", BUILDERS)
@pytest.mark.parametrize("stage_rows", ["ends", "every"])
def test_host_times_of_the_first_and_the_last_stage(schedule: str, stage_rows: str) -> None:
    times = {"host_overhead": "70 us", "get_batch": "3 ms", "loss_time": "5 ms"}
    typed = {"npus": 16, "pp": 4, "microbatches": 8, "schedule": schedule, "stage_rows": stage_rows}
    check_step(short_job("gpt_tp4", layers=8), topology_of("hgx-h100"), **typed, **times)


MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3.2-1b", {"tp": 2, "pp": 2}),
    ("llama-3.2-1b", {"zero": 3, "framework": "torch-fsdp-eager"}),
    ("llama-3.2-1b", {"zero": 2, "pp": 2, "schedule": "gpipe", "framework": "torch-fsdp-eager"}),
    ("llama-3.2-1b", {"pp": 4, "schedule": "interleaved:2", "recompute": "full", "tp": 1}),
    ("qwen1.5-moe-a2.7b", {"ep": 4, "pp": 2, "chunks": 2, "expert_overlap": True}),
    ("qwen1.5-moe-a2.7b", {"ep": 2, "pp": 2, "schedule": "dualpipe-v", "delay_wgrad": True}),
]


@pytest.mark.parametrize(("name", "typed"), MODELS)
def test_models(name: str, typed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(f'based_on = "{name}"\nnum_hidden_layers = 8\n')
    job = {"npus": 8, "global_batch": 32, "sequence": 2048, "microbatch_size": 1}
    check_step(path, topology_of("hgx-h100"), **job, **typed)


@pytest.mark.parametrize(("name", "changed"), [("loss_time", 16.38), ("get_batch", 16.38)])
def test_a_stage_with_both_ends_is_first_and_last_once(name: str, changed: float) -> None:
    """Every stage has the same rows; the first alone gets batches, the last alone has the loss."""
    typed: dict[str, Any] = {"schedule": "gpipe", "stage_rows": "every", name: "100 ms"}
    found = stepsim.simulate("workloads/gpt_1024.txt", "hgx-h100", **typed)
    assert round(found.step_time_s, 2) == changed
