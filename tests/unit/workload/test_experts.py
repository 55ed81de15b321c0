"""Uneven expert load: whose tokens decide, and what is refused."""

from pathlib import Path

import pytest
from jobs import asked, short_job, totals_of

from stepsim import simulate
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.files.expert_counts import read_expert_load
from stepsim.files.load import topology_of, workload_of
from stepsim.files.reading import topology_names
from stepsim.network.prices import Known
from stepsim.workload.expert_load import ExpertSkew
from stepsim.workload.scaling import fullest_load, load_experts


def test_experts_are_shared_out_in_order() -> None:
    assert fullest_load([1, 2, 3, 2], ep=2) == 1.25
    assert fullest_load([5, 5, 5, 5], ep=4) == 1


@pytest.mark.parametrize("tokens", [[], [1, 2, 3], [0, 0], [-1, 2]])
def test_loads_that_make_no_sense_are_refused(tokens: list[float]) -> None:
    with pytest.raises(PlanError, match="expert load"):
        fullest_load(tokens, ep=2)


def test_more_skew_than_one_rank_can_have_is_refused(moe: Path) -> None:
    with pytest.raises(PlanError, match="expert skew is 5"):
        load_experts(workload_of(moe), ExpertSkew(5), microbatches=1)


def test_only_rows_between_the_exchanges_grow(moe: Path) -> None:
    workload = workload_of(moe)
    loaded = load_experts(workload, (1.5, 0.5, 1.0, 1.0), microbatches=1)
    before = {row.name: row for row in workload.rows()}
    inside = {"mlp_moelayer_4", "mlp_moelayer_5", "mlp_moelayer_6"}
    for row in loaded.microbatches[0].layers[0]:
        factor = 1.5 if row.name in inside else 1.0
        assert row.forward.compute_ps == before[row.name].forward.compute_ps * factor
        for op, old in zip(row.forward.comms, before[row.name].forward.comms, strict=True):
            exchange = op.kind is CollectiveKind.ALL_TO_ALL and op.group is Group.EP
            assert op.size_bytes == old.size_bytes * (1.5 if exchange else factor)


@pytest.mark.parametrize("topology", topology_names())
def test_even_loads_change_nothing_and_more_skew_takes_longer(topology: str) -> None:
    """On every shipped machine, whichever algorithm carries the exchange out there."""
    job, network, known = short_job("moe_128", layers=5), topology_of(topology), Known()
    even, *skewed = (
        totals_of(job, network, asked(npus=128, expert_load=load), known=known).step_time_ps
        for load in (None, *(f"skew:{skew}" for skew in (1.0, 1.1, 1.5, 2.0, 4.0)))
    )
    assert skewed[0] == even
    assert skewed == sorted(set(skewed))


def test_a_workload_without_experts_has_nothing_to_load(workloads: Path) -> None:
    with pytest.raises(PlanError, match="no all-to-all over ep groups"):
        simulate(workloads / "gpt_tp4.txt", expert_load=[1.0])


def test_load_files(tmp_path: Path) -> None:
    file = tmp_path / "tokens.txt"
    file.write_text("# layer 3\n100\n\n50.5 # hot\n0\n")
    assert read_expert_load(file) == [100, 50.5, 0]
    for word in ("-1", "many", "nan"):
        file.write_text(f"3\n{word}\n")
        with pytest.raises(WorkloadError, match=rf"tokens.txt:2: tokens is '{word}'"):
            read_expert_load(file)
    with pytest.raises(WorkloadError, match="cannot read the expert load"):
        read_expert_load(tmp_path / "missing.txt")
