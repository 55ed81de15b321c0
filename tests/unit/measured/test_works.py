"""Works of microbatches: what stages have in common, and not slow ranks, slow stages or noise."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from profiles import computes_of, made_rows, with_works, write_rows

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.explore.batches.draws import draw_batches
from stepsim.files.measured import load_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.works import longest_over_mean, microbatch_works
from stepsim.parallel.packers import BatchShape, packer_of
from stepsim.run.spans import UNKNOWN
from stepsim.workload.documents import parse_lengths

pytest.importorskip("pyarrow")

LAWS = {
    "long tail, laid end to end": ("lognormal(mu=6.5, sigma=1.2, most=8192)", "concat", 0.6),
    "long tail, kept whole": ("lognormal(mu=7.5, sigma=1.5, most=8192)", "first-fit", 0.8),
    "sorted by the loader": ("pareto(shape=1, least=200, most=8192)", "first-fit", 0.7),
    "two kinds": ("0.8 fixed(length=512) + 0.2 fixed(length=8192)", "concat", 0.6),
    "padded": ("uniform(least=100, most=8192)", "padded", 0.5),
}
SHAPES = {"a pipeline": (4, 2, 4, 64), "one stage": (1, 8, 4, 64), "wide": (2, 16, 4, 16)}


def drawn(law: str, shape: tuple[int, int, int], seed: int = 0) -> Floats:
    """Works of (steps, replicas, microbatches) whose documents follow a law of the list."""
    lengths, packer, attention = LAWS[law]
    steps, ranks, microbatches = shape
    batches = BatchShape(
        ranks=ranks,
        microbatches=microbatches,
        count=1,
        full_tokens=8192,
        steps=steps,
        attention=attention,
    )
    generator = np.random.default_rng(seed)
    loads = draw_batches(
        packer, parse_lengths(lengths), batches, packer_of(packer), generator
    ).loads()
    cost = batches.cost(loads.tokens, loads.squares)
    return np.asarray(cost / cost.mean())


@cache
def made(folder: Path, stages: int, replicas: int, microbatches: int, steps: int) -> Profile:
    rows = made_rows(stages=stages, replicas=replicas, microbatches=microbatches, steps=steps)
    path = folder / f"{stages}-{replicas}-{microbatches}-{steps}.parquet"
    return load_profile(write_rows(rows, path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


def disturbed(profile: Profile, seed: int = 1, noise: float = 0.03) -> Floats:
    """Factors of operations: noise, a slow rank on the last stage, and steps slow as a whole."""
    generator, events = np.random.default_rng(seed), profile.events
    factor = np.exp(generator.normal(0, noise, len(events)))
    factor *= np.where(events.rank == events.rank.max(), 1.2, 1)
    return np.asarray(factor * np.exp(generator.normal(0, noise, len(profile.steps)))[events.step])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("law", LAWS)
def test_work_is_told_from_slow_ranks_slow_steps_and_noise(
    folder: Path, law: str, shape: tuple[int, int, int, int]
) -> None:
    stages, replicas, microbatches, steps = shape
    works = drawn(law, (steps, replicas, microbatches))
    profile = made(folder, *shape)
    found = microbatch_works(with_works(profile, works, factor=disturbed(profile)))
    assert found.spread == pytest.approx(works.std(), rel=0.08)
    assert np.corrcoef(found.works.ravel(), works.ravel())[0, 1] > 0.97
    longest = longest_over_mean(works).mean()
    assert longest_over_mean(found.works).mean() == pytest.approx(longest, rel=0.05)
    if stages > 1:
        assert found.noise == pytest.approx(0.03, abs=0.01)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_equal_microbatches_are_equal(
    folder: Path, shape: tuple[int, int, int, int], seed: int
) -> None:
    profile = made(folder, *shape)
    _, replicas, microbatches, steps = shape
    even = np.ones((steps, replicas, microbatches))
    found = microbatch_works(with_works(profile, even, factor=disturbed(profile, seed)))
    assert longest_over_mean(found.works).mean() < 1.005
    assert found.spread < 0.01


def test_stages_have_their_share_of_the_work(folder: Path) -> None:
    """A stage whose time does not grow with the documents, as a vocabulary's, has less of it."""
    profile, share = made(folder, 4, 2, 4, 64), np.array([1.0, 1.0, 1.0, 0.4])
    works = drawn("two kinds", (64, 2, 4))
    found = microbatch_works(
        with_works(profile, works, share=share, factor=disturbed(profile, noise=0.01))
    )
    stage = profile.column_of_ranks("stage")[found.held]
    told = [found.share[np.unique(found.series[stage == i])].mean() for i in range(4)]
    assert np.array(told) / told[0] == pytest.approx(share, abs=0.05)


def test_other_works_change_computes_alone_and_back_again(folder: Path) -> None:
    profile = made(folder, 4, 2, 4, 64)
    ran = with_works(profile, drawn("padded", (64, 2, 4)))
    found, own = microbatch_works(ran), ran.events.duration_ps
    same, even = found.changed_ps(own, (found.works, np.ones_like(found.works)))
    assert np.array_equal(same, own)
    computes = computes_of(profile)
    assert np.array_equal(even[~computes], own[~computes])
    assert even[computes].std() < 0.5 * own[computes].std()


def test_the_control_job_and_equal_runs_have_no_imbalance(shared: Path) -> None:
    """Its replicas differ by 0.3 %: 1 % is the most that the reference allows."""
    paths = [shared / "reference/profiles/ndtimeline/trace-ST.parquet"]
    paths += sorted((shared / "reference/measured/megatron_moe_16gpu").glob("pp*"))
    for path in paths:
        found = microbatch_works(load_profile(path))
        assert longest_over_mean(found.works).mean() < 1.01, path


def test_a_profile_that_does_not_tell_says_what_is_missing(folder: Path) -> None:
    profile = made(folder, 4, 2, 4, 64)
    events = profile.events
    nothing = np.full(len(events), UNKNOWN, dtype=np.int64)
    lacking = {
        "microbatches": replace(profile, events=replace(events, microbatch=nothing)),
        "forwards and backwards": replace(profile, events=replace(events, phase=nothing)),
        "stages": replace(profile, ranks=tuple(replace(r, stage=None) for r in profile.ranks)),
        "replicas": replace(profile, ranks=tuple(replace(r, replica=None) for r in profile.ranks)),
    }
    for name, run in lacking.items():
        with pytest.raises(PlanError, match=f"names no {name} of computes"):
            microbatch_works(run)
    fewer = events.taken(np.flatnonzero((events.microbatch != 2) | (events.rank != 3)))
    with pytest.raises(PlanError, match="not every stage ran every microbatch"):
        microbatch_works(replace(profile, events=fewer, follows=None))
    forwards = (events.phase == 0) & (profile.column_of_ranks("stage") == 0)
    alone = replace(profile, events=events.taken(np.flatnonzero(forwards)), follows=None)
    with pytest.raises(PlanError, match="one stage and one phase"):
        microbatch_works(alone)
