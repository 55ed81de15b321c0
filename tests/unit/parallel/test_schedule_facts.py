"""What a schedule says of itself, so that nobody asks for its name."""

import pytest

from stepsim.parallel.schedules import BUILDERS, ActionKind, Schedule, build, needs_times

TIMES = {"forward_ps": 2, "input_grad_ps": 2, "weight_grad_ps": 1}


def built(name: str) -> Schedule:
    options = TIMES if needs_times(name) else {}
    return build(name, ranks=4, microbatches=8, **options)


def test_only_a_schedule_that_is_searched_for_needs_times() -> None:
    assert [name for name in BUILDERS if needs_times(name)] == ["auto-zb"]
    assert not needs_times("no schedule")


@pytest.mark.parametrize("name", BUILDERS)
def test_split_backwards_are_told_by_the_actions(name: str) -> None:
    schedule = built(name)
    kinds = {action.kind for rank in range(4) for action in schedule.actions(rank)}
    assert schedule.splits_backward == (ActionKind.WEIGHT_GRAD in kinds)


@pytest.mark.parametrize("name", ["zb-h1", "zb-v", "interleaved-zb", "v-half", "dualpipe"])
def test_backwards_are_split_in_schedules_with_a_zero_bubble(name: str) -> None:
    assert built(name).splits_backward


def test_schedules_that_fill_once_are_those_of_warm_up_steady_pairs_and_drain() -> None:
    assert [name for name in BUILDERS if built(name).fills_once] == [
        "1f1b",
        "gpipe",
        "interleaved",
        "looped-bfs",
    ]


def test_an_order_equals_the_same_entries_and_no_others() -> None:
    order, *_, other = build("1f1b", ranks=4, microbatches=8).orders
    for same in (tuple(order), build("1f1b", ranks=4, microbatches=8).orders[0]):
        assert order == same
        assert hash(order) == hash(same)
    for another in (other, tuple(order)[1:], 7):
        assert order != another
