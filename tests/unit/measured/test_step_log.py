"""What a log's steps take once they are steady: a rule that many kinds of steps do not move."""

from functools import partial
from statistics import median

import pytest
from hypothesis import given, strategies as st

from stepsim.measured.step_log import StepLog, StepUnit, steady_places, typical


def log_of(*values: float) -> StepLog:
    numbers = tuple(range(len(values)))
    return StepLog(source="x", form="f", numbers=numbers, values=values)


def test_warm_up_and_checkpoints_are_left_out() -> None:
    log = log_of(60.0, 6.1, 5.2, 5.21, 5.19, 8.2, 5.2, 5.22, 5.18, 5.2)
    assert (log.warm_up, log.out_of_line) == ((0, 1), (5,))
    assert typical(log.values) == 5.2


def test_one_line_counts() -> None:
    assert typical((3.0,)) == 3.0
    assert steady_places((3.0, 4.0)) == (1,)


def test_small_differences_count() -> None:
    """Equal steps have no spread: what is within 2 % of them is no other step."""
    assert log_of(9.0, 5.0, 5.0, 5.0, 5.05, 5.2).out_of_line == (5,)


@given(
    st.lists(st.floats(0.98, 1.02), min_size=20, max_size=60),
    st.lists(st.floats(1.3, 100), max_size=5),
    st.randoms(use_true_random=False),
)
def test_a_few_slow_steps_do_not_move_the_step(
    steady: list[float], slow: list[float], random: object
) -> None:
    mixed = [*steady, *slow]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert typical((50.0, *mixed)) == pytest.approx(median(steady), rel=0.02)
    found = log_of(50.0, *mixed)
    places = [*found.steady, *found.warm_up, *found.out_of_line]
    assert sorted(places) == list(range(len(mixed) + 1)), "every line is named once"


def test_rates_of_operations_are_those_of_steady_steps() -> None:
    log = partial(
        StepLog, source="x", form="f", numbers=(1, 2, 3), timers={}, unit=StepUnit.SECONDS
    )
    known = log(values=(9.0, 2.0, 2.0), tflops=(50.0, 400.0, 402.0))
    assert known.steady_tflops == 401.0
    assert log(values=(1.0, 2.0, 3.0)).steady_tflops is None
