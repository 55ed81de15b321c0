"""Stragglers: which ranks are slow, what that costs, and what it unfolds."""

from pathlib import Path

import numpy as np
import pytest
from jobs import short_job
from msgspec import structs

from stepsim import simulate
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError
from stepsim.workload.scaling import parse_slow_ranks


def test_ranks_and_ranges_are_read() -> None:
    factors = parse_slow_ranks("1:1.5, 3-4:2").factors(6)
    assert factors.tolist() == [1, 1.5, 1, 2, 2, 1]


@pytest.mark.parametrize("text", ["", "1", "1:0", "1:nan", "a:2", "6:2", "4-2:2"])
def test_what_is_no_list_of_stragglers_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="slow is"):
        parse_slow_ranks(text).factors(6)


@pytest.mark.parametrize("text", ["0:2,0:3", "0-3:2,3:2"])
def test_a_rank_with_two_factors_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="expected each rank once"):
        parse_slow_ranks(text).factors(6)


def test_a_straggler_computes_longer_and_others_wait(moe: Path) -> None:
    whole, slowed = simulate(moe), simulate(moe, slow="5:1.5")
    base, slow = whole.ranks, slowed.ranks
    mine, other = slow.breakdown[slow.actor_of[5]], slow.breakdown[slow.actor_of[6]]
    assert mine[Part.COMPUTE] == pytest.approx(
        1.5 * base.breakdown[base.actor_of[5]][Part.COMPUTE], rel=1e-6
    )
    assert other[Part.COMPUTE] == base.breakdown[base.actor_of[6]][Part.COMPUTE]
    assert other[Part.SKEW] > base.breakdown[base.actor_of[6]][Part.SKEW]
    assert slowed.report.step_time_ps > whole.report.step_time_ps


def test_a_factor_of_one_changes_nothing(moe: Path) -> None:
    one, other = (simulate(moe, slow=slow).document() for slow in ("0-127:1", None))
    assert one == structs.replace(other, settings={"slow": "0-127:1"})


@pytest.mark.parametrize("contention", ["none", "fair"])
def test_only_what_a_straggler_touches_unfolds(contention: str) -> None:
    moe = short_job("moe_128", layers=5)
    folded = simulate(moe, slow="5:1.3", contention=contention, dp_overlap=True)
    every = simulate(moe, slow="5:1.3", contention=contention, dp_overlap=True, fold_ranks=False)
    assert len(simulate(moe).ranks.actors) < len(folded.ranks.actors) < 128
    assert folded.step_time_s == every.step_time_s
    mine, all_ranks = (r.ranks.breakdown[r.ranks.actor_of] for r in (folded, every))
    assert np.array_equal(mine, all_ranks)
