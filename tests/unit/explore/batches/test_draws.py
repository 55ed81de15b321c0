"""Steps of real batches: full sequences are the step as ever, others wait for the longest."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from stepsim import Result, simulate
from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError
from stepsim.explain.memory import MemoryPart
from stepsim.explore.batches import draws
from stepsim.explore.batches.draws import BatchStudy, DrawnBatches, fullest_bytes, simulate_batches
from stepsim.explore.batches.prices import microbatch_prices, spread_prices
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.parallel.packers import (
    BatchShape,
    Packer,
    PackerEntry,
    Packing,
    Takes,
    packer_of,
)
from stepsim.parallel.packers.base import dealt, packed
from stepsim.workload.documents import Lengths, parse_lengths

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL: dict[str, Any] = {
    "topology": "hgx-h100",
    "npus": 16,
    "tp": 2,
    "pp": 2,
    "chunks": 1,
    "sequence": 16384,
    "microbatches": 4,
}
JOBS: dict[str, dict[str, Any]] = {
    "dense": {"workload": "llama-3-8b"},
    "no pipeline": {"workload": "llama-3-8b", "pp": 1, "zero": 1},
    "sharded": {"workload": "llama-3-8b", "pp": 1, "tp": 1, "zero": 3},
    "interleaved": {"workload": "llama-3-8b", "schedule": "interleaved", "chunks": 2},
    "split backward": {"workload": "llama-3-8b", "schedule": "zb-h1"},
    "experts": {"workload": "mixtral-8x7b", "ep": 4},
    "long context": {"workload": "llama-3-8b", "cp": 2, "pp": 1},
    "samples": {"workload": "llama-3-8b", "microbatch_size": 2},
}


SKEWED = "0.9 fixed(length=1024) + 0.1 fixed(length=16384)"
ONE_STAGE: dict[str, Any] = JOBS["no pipeline"] | {"tp": 1}


PRICED: dict[tuple[object, ...], Any] = {}
"""Prices of the jobs that were read: what a study draws has no part in them."""


def once(price: Callable[..., Any]) -> Callable[..., Any]:
    def priced(job: object, *numbers: int) -> Any:
        key = (price, id(job), *numbers)
        if key not in PRICED:
            PRICED[key] = price(job, *numbers)
        return PRICED[key]

    return priced


@pytest.fixture(autouse=True, scope="module")
def jobs_are_priced_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for price in (microbatch_prices, spread_prices):
            patch.setattr(draws, price.__name__, once(price))
        yield


def asked(job: dict[str, Any]) -> StepInputs:
    return read(json.dumps(SMALL | job))


@cache
def read(job: str) -> StepInputs:
    options = json.loads(job)
    return read_inputs(options.pop("workload"), options.pop("topology"), options)


def study(
    job: dict[str, Any],
    lengths: str | Lengths,
    *packers: str | Packer | PackerEntry,
    steps: int = 4,
    seed: int = 0,
) -> BatchStudy:
    law = parse_lengths(lengths) if isinstance(lengths, str) else lengths
    drawn = DrawnBatches(lengths=law, packers=tuple(packers), steps=steps, seed=seed)
    return simulate_batches(asked(job), drawn)


def simulated(job: dict[str, Any]) -> Result:
    return simulate(**SMALL | job)


def simulated_ps(job: dict[str, Any], **changes: object) -> int:
    return simulated(job | changes).report.step_time_ps


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_full_sequences_are_the_step_as_ever(job: dict[str, Any]) -> None:
    found = study(job, "fixed(length=16384)", "sequence", "padded", "concat", "first-fit", steps=2)
    planned = simulated_ps(job)
    assert found.planned_ps == planned
    for steps in found.packed[:1] if "microbatch_size" in job else found.packed:
        assert steps.step_time_ps.tolist() == [planned, planned]
        assert steps.waiting == 0


@pytest.mark.parametrize("job", [JOBS["dense"], JOBS["experts"], JOBS["interleaved"]])
def test_short_documents_are_the_step_that_is_packed_with_them(job: dict[str, Any]) -> None:
    """Shortest documents were priced: the study gives the step of `--packed` to the picosecond."""
    found = study(job, "fixed(length=2048)", "concat", steps=1)
    assert found.packed[0].step_time_ps.tolist() == [simulated_ps(job, packed=2048)]


def test_documents_between_take_times_between() -> None:
    """Attention alone grows with documents at equal tokens, and in proportion to its pairs."""
    lengths = (2048, 4096, 8192, 16384)
    times = [
        study(JOBS["dense"], f"fixed(length={n})", "concat", steps=1).packed[0].mean_ps
        for n in lengths
    ]
    exact = [simulated_ps(JOBS["dense"], packed=n) for n in lengths]
    assert times == sorted(times)
    assert times == pytest.approx(exact, rel=1e-9)


HOST_BOUND = {"workload": "llama-3.2-1b", "npus": 8, "tp": 1, "pp": 1, "sequence": 8192}


@pytest.mark.parametrize("job", [JOBS["dense"], JOBS["samples"], HOST_BOUND])
def test_padded_documents_take_the_step_of_their_length(job: dict[str, Any]) -> None:
    """Also where the host's launches hide attention at one length, and not at another."""
    whole = job.get("sequence", SMALL["sequence"])
    for length in (whole // 4, whole // 2, 3 * whole // 4):
        found = study(job, f"fixed(length={length})", "padded", steps=1).packed[0]
        assert found.mean_ps == pytest.approx(simulated_ps(job, sequence=length), rel=0.005)


def test_one_long_microbatch_delays_all_ranks() -> None:
    """Against the same tokens in equal microbatches, the step is longer by the longest's delay."""
    found = study(JOBS["no pipeline"], SKEWED, "padded", "balanced", steps=40)
    drawn, balanced = found.packed
    assert drawn.waiting > 0.1
    assert balanced.waiting <= drawn.waiting


def test_equal_seeds_draw_equal_steps_and_others_do_not() -> None:
    law, found = "lognormal(mu=8, sigma=1, most=16384)", []
    for seed in (3, 3, 4):
        PRICED.clear()
        found.append(study(JOBS["dense"], law, "padded", seed=seed).packed[0].step_time_ps.tolist())
    assert found[0] == found[1] != found[2]


def test_experts_wait_for_the_fullest_member_of_their_group() -> None:
    """Where ranks exchange tokens in every layer, they are never ahead of each other."""
    law = "0.8 fixed(length=2048) + 0.2 fixed(length=16384)"
    alone, together = (
        study(JOBS["experts"] | {"ep": ep, "pp": 1}, law, "padded", steps=20).packed[0].waiting
        for ep in (1, 8)
    )
    assert together > alone


def test_padding_costs_what_one_job_measured() -> None:
    """transformers PR 47340: 1,600 documents in 50 steps of 2 ranks x 2 microbatches of 8.

    Its compute is given: 186 ms + 21.2 us for each padded token of the slowest rank. Measured: mean
    0.44 s and p90 0.54 s as drawn, 0.27 and 0.395 s grouped by length, ratio of means 1.63.
    """
    law = parse_lengths("lognormal(mu=5, sigma=1, least=16, most=1024)")
    shape = BatchShape(ranks=2, microbatches=2, count=8, full_tokens=8 * 1024, steps=50)
    means, late = {}, {}
    for name in ("padded", "grouped"):
        drawn = [
            packer_of(name).pack(law.draw(np.random.default_rng(seed), 1600), shape).loads()
            for seed in range(40)
        ]
        slowest = np.concatenate([loads.tokens.sum(axis=2).max(axis=1) for loads in drawn])
        times = 0.186 + 21.2e-6 * slowest
        means[name], late[name] = times.mean(), np.percentile(times, 90)
    assert means == pytest.approx({"padded": 0.44, "grouped": 0.27}, rel=0.1)
    assert late == pytest.approx({"padded": 0.54, "grouped": 0.395}, rel=0.1)
    assert means["padded"] / means["grouped"] == pytest.approx(1.63, abs=0.12)


def test_the_share_of_attention_grows_with_the_sequence() -> None:
    short, long = (
        microbatch_prices(asked(JOBS["dense"] | {"sequence": sequence})).attention
        for sequence in (16384, 65536)
    )
    assert 0.05 < short < long < 0.9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps is 0: expected at least 1"),
        ({"steps": 10**9}, "steps is 1000000000: expected at most"),
        ({"seed": -1}, "seed is -1: expected at least 0"),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        study(JOBS["dense"], "fixed(length=100)", "padded", **changes)


def test_a_sequence_too_short_to_tell_documents_apart_is_refused() -> None:
    with pytest.raises(PlanError, match="sequence is 4: expected at least 8 tokens"):
        study({"workload": "llama-3-8b", "sequence": 4}, "fixed(length=4)", "padded")


def test_short_documents_that_wait_for_the_host_where_replicas_meet_are_refused() -> None:
    job = {"workload": "deepseek-v3", "topology": "hgx-a100", "npus": 32, "tp": 1, "pp": 1}
    job |= {"cp": 2, "ep": 8, "expert_tp": 2, "sequence": 4096, "microbatches": 2}
    with pytest.raises(PlanError, match="documents of 512 tokens wait for the host"):
        study(job, "fixed(length=512)", "padded", steps=1)


def test_parts_of_the_mean_step_add_up_to_it() -> None:
    """Work alone needs the same tokens in every microbatch and no padding: a step is never less."""
    job = JOBS["dense"] | {"microbatch_size": 2}
    for steps in study(job, SKEWED, "sequence", "padded", "concat", steps=10).packed:
        parts = steps.parts_ps
        assert sum(parts.values()) == round(steps.mean_ps)
        assert parts["waiting"] >= 0
        assert (parts["padding"] > 0) == (steps.padding > 0)
        assert parts["waiting"] / steps.mean_ps == pytest.approx(steps.waiting, abs=1e-9)


def one_a_microbatch(lengths: Ints, shape: BatchShape) -> Packing:
    """Documents in order, as many as there are microbatches: the others are lost."""
    documents = np.arange(min(len(lengths), shape.slots))
    return packed(shape, dealt(documents, shape), documents, lengths[documents])


def test_packers_of_ones_own_may_not_lose_documents() -> None:
    law = parse_lengths("uniform(least=1000, most=3000)")
    with pytest.raises(PlanError, match=r"packer one_a_microbatch packs \d+ of"):
        study(JOBS["dense"], law, one_a_microbatch)
    entry = PackerEntry(one_a_microbatch, Takes.COUNT)
    own, padded = study(JOBS["dense"], law, entry, "padded").packed
    assert own.step_time_ps.tolist() == padded.step_time_ps.tolist()


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize(
    "law",
    [
        "fixed(length=16384)",
        "fixed(length=1000)",
        "uniform(least=1, most=16384)",
        "0.98 lognormal(mu=7, sigma=1, most=16384) + 0.02 fixed(length=16384)",
    ],
)
def test_ranks_shared_out_by_length_are_never_slower_than_one_degree_for_all(
    cp: int, law: str
) -> None:
    job = ONE_STAGE | {"cp": cp}
    balanced, dynamic = study(job, law, "balanced", "dynamic-cp", steps=8).packed
    assert dynamic.tokens_per_s > 0.98 * balanced.tokens_per_s
    assert dynamic.real.sum() == balanced.real.sum()


@pytest.mark.parametrize("comm", ["ring", "all_to_all"])
def test_documents_that_take_every_rank_take_the_step_of_that_degree(comm: str) -> None:
    job = ONE_STAGE | {"cp": 4, "cp_comm": comm}
    found = study(job, "fixed(length=16384)", "dynamic-cp", steps=1)
    assert found.packed[0].mean_ps == pytest.approx(found.planned_ps, rel=0.01)


def test_short_documents_gain_where_no_rank_waits_for_messages() -> None:
    """Over two nodes a ring is slow, and short documents have no need of it."""
    job = ONE_STAGE | {"cp": 16, "sequence": 131072}
    static, dynamic = study(job, "fixed(length=512)", "balanced", "dynamic-cp", steps=2).packed
    assert dynamic.tokens_per_s > 1.1 * static.tokens_per_s


@pytest.mark.parametrize("name", ["dense", "no pipeline", "interleaved", "experts"])
def test_full_microbatches_hold_what_a_full_sequence_does(name: str) -> None:
    memory = simulated(JOBS[name]).memory
    assert memory is not None
    found = study(JOBS[name], "fixed(length=16384)", "concat", steps=1)
    assert found.packed[0].memory_bytes == memory.total_bytes
    assert found.capacity_bytes == memory.capacity_bytes


def test_memory_is_that_of_the_largest_microbatch() -> None:
    """Twice the tokens are twice the activations of those that a stage keeps at a time."""
    memory = simulated(JOBS["no pipeline"]).memory
    assert memory is not None
    peak = memory.fullest
    parts = MemoryPart.ACTIVATIONS, MemoryPart.LOGITS, MemoryPart.RECOMPUTED
    live = sum(peak.parts.get(part, 0) for part in parts)
    filled = np.ones((2, 3, 4))
    filled[1, 2, 3] = 2.0
    assert fullest_bytes(memory, filled) == peak.total + live
    assert fullest_bytes(memory, filled / 2) == peak.total
    fitted, balanced = study(JOBS["dense"], SKEWED, "first-fit", "balanced", steps=10).packed
    assert balanced.fullest > 1 >= fitted.fullest
    assert balanced.memory_bytes > fitted.memory_bytes


def test_packers_are_compared_on_equally_many_documents() -> None:
    """Alone, padded steps have one document a sample; beside first fit, as many as that packs."""
    law = "uniform(least=1000, most=3000)"
    padded, packed = study(JOBS["dense"], law, "padded", "first-fit", steps=20).packed
    (alone,) = study(JOBS["dense"], law, "padded", steps=20).packed
    assert padded.real.mean() == pytest.approx(packed.real.mean(), rel=0.1)
    assert alone.typical.shape[1] == packed.typical.shape[1] == SMALL["microbatches"]
    assert padded.typical.shape[1] == 8 * SMALL["microbatches"]
    assert packed.tokens_per_s > padded.tokens_per_s > alone.tokens_per_s
