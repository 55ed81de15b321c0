"""Loads of experts by layer and microbatch: laws, counts, and what the fullest rank decides."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepsim import noise, simulate
from stepsim.base.axes import Group
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.files.asked import read_inputs
from stepsim.files.expert_counts import is_expert_counts, read_expert_counts
from stepsim.files.load import workload_of
from stepsim.step.job import job_of
from stepsim.workload.expert_load import ExpertLaw, is_expert_law, parse_expert_law
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Row, Workload
from stepsim.workload.scaling import fullest_load, load_experts

MODEL = 'based_on = "qwen1.5-moe-a2.7b"\nnum_hidden_layers = 3\n'
JOB: dict[str, Any] = {
    "npus": 16,
    "tp": 1,
    "ep": 4,
    "global_batch": 64,
    "sequence": 1024,
    "cuda_graph": True,
}


def law(text: str) -> ExpertLaw:
    found = parse_expert_law(text)
    assert isinstance(found, ExpertLaw)
    return found


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    path = tmp_path / "moe.toml"
    path.write_text(MODEL)
    return path


def rows_of(path: Path, **options: Any) -> Workload:
    job = read_inputs(path, "hgx-h100", {**JOB, **options})
    assert isinstance(job.workload, Model)
    return job_of(job).given


def step_ps(path: Path, **options: Any) -> int:
    return simulate(path, "hgx-h100", **JOB, **options).report.step_time_ps


def test_laws_are_read_as_they_are_written() -> None:
    for text in ("power:1.2", "dirichlet:0.5"):
        assert str(law(text)) == text
        assert is_expert_law(text)
    assert parse_expert_law("balanced") is None
    assert not is_expert_law("tokens.txt")
    for wrong in ("power", "dirichlet:0", "zipf:1", "power:1e9"):
        with pytest.raises(PlanError, match="expert_load is"):
            parse_expert_law(wrong)


def test_shares_follow_their_law() -> None:
    random = np.random.default_rng(3)
    power = np.sort(law("power:1").shares(random, 8, 1))[::-1]
    assert power / power[0] == pytest.approx([1 / rank for rank in range(1, 9)])
    draws = np.array([law("dirichlet:2").shares(random, 8, 1) for _ in range(4000)])
    assert draws.sum(axis=1) == pytest.approx(1)
    # variance of a share: (1/8)(7/8) / (8 x 2 + 1)
    assert draws.var(axis=0).mean() == pytest.approx(1 / 8 * 7 / 8 / 17, rel=0.05)


def test_a_token_chooses_an_expert_once() -> None:
    """With 4 of 8 experts none has more than a quarter; the law's first had 0.37 of all."""
    shares = law("power:1").shares(np.random.default_rng(3), 8, 4)
    assert shares.max() == pytest.approx(1 / 4)
    assert shares.sum() == pytest.approx(1)
    below = np.sort(shares)[::-1][1:]
    assert below / below[0] == pytest.approx([2 / rank for rank in range(2, 9)])


def factors(loaded: Workload, plain: Workload) -> list[list[float]]:
    """Compute of experts over what it was, by microbatch and layer."""

    def computed(rows: tuple[Row, ...]) -> int:
        return sum(row.forward.compute_ps for row in rows if row.routed)

    return [
        [
            computed(layer) / computed(before)
            for layer, before in zip(block.layers, plain.microbatches[0].layers, strict=True)
        ]
        for block in loaded.microbatches
    ]


def test_each_layer_of_each_microbatch_has_a_load_of_its_own(sparse: Path) -> None:
    plain, drawn = rows_of(sparse), law("dirichlet:1:5")
    loaded = load_experts(plain, drawn, microbatches=4)
    found = factors(loaded, plain)
    assert (len(found), len(found[0])) == (4, 3)
    assert len({round(each, 6) for layers in found for each in layers}) == 12
    random = np.random.default_rng([5, 2, 1])
    shares = drawn.shares(random, 60, 4).tolist()
    assert found[1][2] == pytest.approx(fullest_load(shares, 4), rel=1e-6)
    again = load_experts(plain, drawn, microbatches=4)
    assert again == loaded
    assert load_experts(plain, law("dirichlet:1:6"), microbatches=4) != loaded


def test_the_fullest_rank_decides_exchanges_and_experts_alone(sparse: Path) -> None:
    """Shared experts run beside the exchanges: they have their tokens whatever the router does."""
    plain = rows_of(sparse, shared_overlap=True, dispatch="deepep")
    loaded = load_experts(plain, law("power:0.5"), microbatches=1)
    assert factors(loaded, plain)[0][0] > 1
    layer, before = (work.microbatches[0].layers[0] for work in (loaded, plain))
    for row, old in zip(layer, before, strict=True):
        assert (row.forward.compute_ps > old.forward.compute_ps) == (row.name == "experts")
        for op, was in zip(row.forward.comms, old.forward.comms, strict=True):
            assert (op.size_bytes > was.size_bytes) == (op.group is Group.EP)
            assert (op.least_ps > was.least_ps) == (op.group is Group.EP)


def test_balanced_is_as_before_and_uneven_takes_longer(sparse: Path) -> None:
    plain = step_ps(sparse)
    for even in ("balanced", "power:0"):
        assert step_ps(sparse, expert_load=even) == plain
    laws = ("dirichlet:100", "dirichlet:3", "dirichlet:0.3")
    times = [step_ps(sparse, expert_load=text) for text in laws]
    assert [plain, *times] == sorted({plain, *times})
    assert step_ps(sparse, expert_load="dirichlet:3:1") not in times


def test_noise_shows_the_spread_of_loads(sparse: Path) -> None:
    quiet = {"task": 0.0}
    found = noise(sparse, "hgx-h100", model=quiet, samples=8, expert_load="dirichlet:3", **JOB)
    alone = [step_ps(sparse, expert_load=f"dirichlet:3:{seed}") for seed in range(8)]
    assert found.step_time_ps.tolist() == alone
    assert len(set(alone)) == 8
    assert found.planned_ps == alone[0]


HEADER = "layer,microbatch,expert,tokens\n"


def test_a_routers_counts_are_taken_layer_by_layer(sparse: Path, tmp_path: Path) -> None:
    """Rank 0 has experts 0 to 14 of 60: all tokens of layer 1 in the second of two microbatches."""
    path = tmp_path / "router.csv"
    path.write_text(f"{HEADER}0,0,0,10\n0,0,59,10\n1,1,3,5\n1,1,4,5\n")
    assert is_expert_counts(path)
    counts = read_expert_counts(path)
    plain = rows_of(sparse)
    found = factors(load_experts(plain, counts, microbatches=4), plain)
    assert found == [pytest.approx([2.0, 1.0, 1.0]), pytest.approx([1.0, 4.0, 1.0])]
    step = simulate(sparse, "hgx-h100", expert_load=path, **JOB)
    assert "times the mean load, 4.00 in the worst" in " ".join(step.report.warnings)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,0,x,1\n", "router.csv:2: expert is 'x'"),
        ("0,0,1,-1\n", "router.csv:2: tokens is '-1'"),
        ("99999,0,1,1\n", "router.csv:2: layer is '99999'"),
    ],
)
def test_counts_that_nobody_can_read_are_named(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "router.csv"
    path.write_text(HEADER + rows)
    with pytest.raises(WorkloadError, match=words):
        read_expert_counts(path)


def test_what_cannot_be_loaded_is_refused(sparse: Path, moe: Path, tmp_path: Path) -> None:
    path = tmp_path / "router.csv"
    path.write_text(f"{HEADER}0,0,7,10\n")
    with pytest.raises(PlanError, match=r"8 experts: .* has 60 in a layer"):
        simulate(sparse, "hgx-h100", expert_load=path, **JOB)
    with pytest.raises(PlanError, match="does not say how many experts it has"):
        simulate(moe, expert_load="power:1")
    path.write_text(f"{HEADER}0,0,7,0\n")
    with pytest.raises(PlanError, match="no tokens are counted"):
        read_expert_counts(path)


def test_files_that_say_no_experts_take_counts(moe: Path, tmp_path: Path) -> None:
    path = tmp_path / "router.csv"
    path.write_text(f"{HEADER}0,0,0,3\n0,0,1,1\n0,0,2,2\n0,0,3,2\n")
    loaded = load_experts(workload_of(moe), read_expert_counts(path), microbatches=1)
    assert "the fullest of 4 expert ranks has" in loaded.warnings[-1]
