"""Programs of one-chunk runtimes, and the lower bound of every schedule."""

from collections.abc import Iterator

from stepsim.p2p.steps import Compute, End, Post, Step, Wait, received, sent
from stepsim.schedules import Schedule


def eager(schedule: Schedule, rank: int) -> Iterator[Step]:
    """Every message is posted when it can be and waited for when it is needed."""
    for place, entry in enumerate(schedule.orders[rank]):
        needed = received(schedule, entry)
        if needed:
            yield Post(ends=needed)
            yield Wait(ends=needed)
        yield Compute(place=place)
        leaving = sent(schedule, entry)
        if leaving:
            yield Post(ends=leaving)


def blocking(schedule: Schedule, rank: int) -> Iterator[Step]:
    """Megatron-LM's `forward_backward_pipelining_without_interleaving`, every call waits.

    Warm-up forwards, each ([recv F], F, [send F]); then [recv F] and pairs
    (F, [send F, recv B], B, [send B, recv F]); then the rest, each ([recv B], B, [send B]). GPipe
    is the case in which all forwards are warm-up.
    """
    order, lead = schedule.orders[rank], schedule.warm_up[rank]
    steady = range(lead, 2 * schedule.microbatches - lead)
    for place, entry in enumerate(order):
        if place not in steady or place == lead:
            yield from batch(received(schedule, entry))
        yield Compute(place=place)
        following = received(schedule, order[place + 1]) if place + 1 in steady else ()
        yield from batch((*sent(schedule, entry), *(following if place in steady else ())))


def batch(ends: tuple[End, ...]) -> Iterator[Step]:
    """Post and wait; an empty batch is free."""
    if ends:
        yield Post(ends=ends, wait=True)
