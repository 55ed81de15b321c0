"""Plans that vendors published: a search has them, they fit, and its best is hardly better."""

from pathlib import Path

import pytest
from published_plans import find_published, published_plans

from stepsim.explore.plan.asked import why_slower

ROWS = 6
WORST = 0.065


@pytest.mark.parametrize("number", range(ROWS))
def test_a_published_plan_fits_and_is_priced_near_the_best(number: int, shared: Path) -> None:
    rows = published_plans(shared / "reference/steps/published_plans.csv")
    assert len(rows) == ROWS
    found = find_published(rows[number])
    assert found.behind <= WORST
    assert found.priced.memory[found.place] <= 80 * 2**30


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(3, marks=pytest.mark.slow),
        4,
        pytest.param(5, marks=pytest.mark.slow),
    ],
)
def test_a_published_plan_is_simulated_near_the_best_found(number: int, shared: Path) -> None:
    rows = published_plans(shared / "reference/steps/published_plans.csv")
    published, best = find_published(rows[number]).simulated(runs=3)
    assert published.step_ps <= best.step_ps * (1 + WORST)
    if published is not best:
        assert why_slower(published, best)
