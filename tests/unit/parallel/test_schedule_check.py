"""Schedules that are given: complete, on their ranks, and after what they need."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from shapes import shapes

from stepsim import compare, simulate
from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.parallel.schedules import Action, ActionKind, OrderEntry, Placement, Schedule, build
from stepsim.parallel.schedules.base import chunks_on_ranks
from stepsim.parallel.schedules.check import check_schedule

SHAPES = shapes(5)
F, B, I, W = ActionKind  # noqa: E741


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_every_schedule_of_ours_passes(name: str, data: st.DataObject) -> None:
    check_schedule(data.draw(SHAPES[name]))


@given(data=st.data())
def test_a_weight_gradient_moved_before_its_input_gradient_is_found(data: st.DataObject) -> None:
    """Wherever it stands: one that ran early would beat every order that can run."""
    schedule = data.draw(SHAPES["interleaved-zb"])
    rank = data.draw(st.integers(0, schedule.placement.ranks - 1))
    order = list(schedule.orders[rank])
    moved = data.draw(st.sampled_from([a for a in schedule.actions(rank) if a.kind is W]))
    own = next(i for i, a in enumerate(order) if a == replace(moved, kind=I))
    order.remove(moved)
    place = data.draw(st.integers(0, own))
    order.insert(place, moved)
    orders = (*schedule.orders[:rank], tuple(order), *schedule.orders[rank + 1 :])
    with pytest.raises(ScheduleError) as caught:
        check_schedule(replace(schedule, orders=orders))
    needed = replace(moved, kind=I).token
    assert f"rank {rank} runs {moved.token} at place {place}: expected it after {needed}" in str(
        caught.value
    )


def action(kind: ActionKind, stage: int, microbatch: int, chunk: int = 0) -> Action:
    return Action(kind=kind, stage=stage, chunk=chunk, microbatch=microbatch)


def one_rank(*order: OrderEntry, microbatches: int = 1) -> Schedule:
    placement = Placement(ranks=1)
    return Schedule(name="mine", placement=placement, microbatches=microbatches, orders=(order,))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (one_rank(), "stage 0 runs nothing of microbatch 0"),
        (one_rank(action(F, 0, 0), action(B, 0, 0), action(B, 0, 0)), "stage 0 runs F, B, B"),
        (one_rank(action(F, 1, 0), action(B, 0, 0)), "1F0 in chunk 0: expected stages 0 to 0"),
        (one_rank(action(F, 0, 7), action(B, 0, 0)), "0F7 in chunk 0: expected microbatches 0"),
        (one_rank(action(B, 0, 0), action(F, 0, 0)), "runs 0B0 at place 0: expected it after 0F0"),
        (
            replace(
                build("1f1b", ranks=2, microbatches=1),
                orders=build("1f1b", ranks=2, microbatches=1).orders[::-1],
            ),
            "rank 0 runs 1F0 in chunk 0: expected stage 0 in that chunk",
        ),
    ],
)
def test_what_cannot_run_is_named(schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        check_schedule(schedule)
    assert words in str(caught.value)


def early_weights() -> Schedule:
    """ZB-H1 whose last rank runs every weight gradient first of all."""
    schedule = build("zb-h1", ranks=4, microbatches=8)
    last = schedule.orders[3]
    weights = tuple(each for each in last if each.parts()[0].kind is W)
    rest = tuple(each for each in last if each not in weights)
    return replace(schedule, name="early", orders=(*schedule.orders[:3], (*weights, *rest)))


@pytest.mark.parametrize("p2p", ["eager", "overlap"])
def test_a_weight_gradient_waits_for_its_output_gradient(p2p: str, workloads: Path) -> None:
    """From Python, in a simulation and in a comparison."""
    file = workloads / "gpt_tp4.txt"
    with pytest.raises(ScheduleError, match=r"rank 3 runs 3W0 at place 0: .* after 3I0"):
        simulate(file, "ideal", npus=16, pp=4, microbatches=8, schedule=early_weights(), p2p=p2p)
    both: list[str | Path | Schedule] = ["zb-h1", early_weights()]
    compared = compare(file, both, "ideal", npus=16, pp=4, microbatches=8, p2p=p2p)
    assert "rank 3 runs 3W0" in compared.candidates[1].refusal


def test_a_schedule_of_more_than_four_million_forwards_is_refused() -> None:
    """2**22 = 4,194,304 are the most: 4 ranks, 2**19 microbatches and 2 chunks."""
    chunks_on_ranks("x", 4, 2**19, 2)
    with pytest.raises(ScheduleError, match="is 4194312: expected a product of at most 4194304"):
        chunks_on_ranks("x", 4, 2**19 + 1, 2)
