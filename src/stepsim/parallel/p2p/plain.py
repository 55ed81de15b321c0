"""Programs of one-chunk runtimes, and the lower bound of every schedule."""

from collections.abc import Iterator

from stepsim.parallel.p2p.steps import Compute, End, Post, Step, Wait, exchanges
from stepsim.parallel.schedules import Schedule


def eager(schedule: Schedule, rank: int) -> Iterator[Step]:
    """Every message is posted when it can be and waited for when it is needed."""
    for place, (received, sent) in enumerate(exchanges(schedule, rank)):
        if received:
            yield Post(ends=received)
            yield Wait(ends=received)
        yield Compute(place=place)
        if sent:
            yield Post(ends=sent)


def blocking(schedule: Schedule, rank: int) -> Iterator[Step]:
    """Megatron-LM's `forward_backward_pipelining_without_interleaving`, every call waits.

    Warm-up forwards, each ([recv F], F, [send F]); then [recv F] and pairs
    (F, [send F, recv B], B, [send B, recv F]); then the rest, each ([recv B], B, [send B]). GPipe
    is the case in which all forwards are warm-up.
    """
    moved, lead = exchanges(schedule, rank), schedule.warm_up[rank]
    steady = range(lead, 2 * schedule.microbatches - lead)
    for place, (received, sent) in enumerate(moved):
        if place not in steady or place == lead:
            yield from batch(received)
        yield Compute(place=place)
        together = place in steady and place + 1 in steady
        yield from batch((*sent, *(moved[place + 1].received if together else ())))


def batch(ends: tuple[End, ...]) -> Iterator[Step]:
    """Post and wait; an empty batch is free."""
    if ends:
        yield Post(ends=ends, wait=True)
