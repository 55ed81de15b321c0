"""V-Min and V-Half: two chunks per rank in a V, with a third and half of 1F1B's activations.

Qi, Wan, Amar and Lin, "Pipeline parallelism with controllable memory", NeurIPS 2024
(arXiv:2405.15362). A building block is when each rank runs the two forwards and two input gradients
of one microbatch, in units of one action; it is repeated every 6 units, one per F, I and W of two
chunks. How long a block lasts on a rank decides how much it holds: V-Min has the shortest block,
one unit from stage to stage; V-Half lets forwards down and gradients down take two units, so that
unequal F, I and W still fit. Weight gradients take what is free.
"""

from collections import deque
from collections.abc import Iterator

from stepsim.base.structs import Numbers
from stepsim.parallel.schedules.base import (
    ActionKind,
    Placement,
    PlacementKind,
    Schedule,
    chunks_on_ranks,
    of_slots,
)

_PERIOD = 6
# The four actions of a building block, in their order on every rank: kind and chunk.
_SLOTS = (
    (ActionKind.FORWARD, 0),
    (ActionKind.FORWARD, 1),
    (ActionKind.INPUT_GRAD, 1),
    (ActionKind.INPUT_GRAD, 0),
)


def v_min(*, ranks: int, microbatches: int) -> Schedule:
    """V-Min for any number of microbatches: at most (P+4)//3 microbatches live on a rank.

    With equal F, I and W and free messages the bubble is 4P-5 actions (4P-3 where 3 divides P),
    about 2P/3m of the step.
    """
    return _schedule("v-min", ranks, microbatches, 1, (ranks + 4) // 3)


def v_half(*, ranks: int, microbatches: int) -> Schedule:
    """V-Half for any number of microbatches: at most (P+2)//2 microbatches live on a rank.

    With equal F, I and W and free messages the bubble is 3P-3 actions (3P-4 for odd P), about P/2m
    of the step.
    """
    return _schedule("v-half", ranks, microbatches, 2, (ranks + 2) // 2)


def _block(slow: int, ranks: int, rank: int, wait: int) -> Numbers:
    """Starts of a rank's four actions: `slow` units from stage to stage on the way down, one up.

    Gradients wait so long between the ways of forwards and their own.
    """
    down, up, turn = slow * rank, ranks - 1 - rank, slow * (ranks - 1) + 1
    later = turn + ranks + wait
    return down, turn + up, later + down, later + turn + up


def _schedule(name: str, ranks: int, microbatches: int, slow: int, limit: int) -> Schedule:
    placement = chunks_on_ranks(name, ranks, microbatches, 2, PlacementKind.V)
    timed = [list(_repeated(starts, microbatches)) for starts in _blocks(slow, ranks)]
    slots = _with_weight_gradients(timed, placement, 2 * limit)
    return of_slots(name, placement, microbatches, slots)


def _blocks(slow: int, ranks: int) -> list[Numbers]:
    """Blocks of all ranks, with the least wait for which repeated ones never meet on a rank."""
    tried = ([_block(slow, ranks, rank, wait) for rank in range(ranks)] for wait in range(_PERIOD))
    return next(
        blocks
        for blocks in tried
        if all(len({start % _PERIOD for start in each}) == len(_SLOTS) for each in blocks)
    )


# An action of a rank: kind, chunk and microbatch.
_Step = tuple[ActionKind, int, int]


def _repeated(starts: Numbers, microbatches: int) -> Iterator[_Step]:
    """Forwards and input gradients of a rank, in the order of repeated blocks."""
    timed = sorted(
        (start + _PERIOD * microbatch, slot, microbatch)
        for slot, start in enumerate(starts)
        for microbatch in range(microbatches)
    )
    return ((*_SLOTS[slot], microbatch) for _, slot, microbatch in timed)


def _with_weight_gradients(
    timed: list[list[_Step]], placement: Placement, most_live: int
) -> list[list[str]]:
    """The orders with each W where its rank waits, or has no room for another forward.

    Ranks are walked through unit by unit: every action takes one, messages take none.
    """
    left = [order[::-1] for order in timed]
    orders = [list[str]() for _ in timed]
    weights = [deque[str]() for _ in timed]  # those that each rank could run
    live = [0] * len(timed)
    ended: dict[_Step, int] = {}  # by stage in place of the chunk
    now = 0
    while any(left) or any(weights):
        for rank, own in enumerate(left):
            if own:
                kind, chunk, microbatch = own[-1]
                forward, stage = kind is ActionKind.FORWARD, placement.stage(rank, chunk)
                before = stage - 1 if forward else stage + 1
                inside = 0 <= before < placement.stages
                waits = inside and ended.get((kind, before, microbatch), now + 1) > now
                waits = waits or (forward and live[rank] == most_live)
            if own and not waits:
                own.pop()
                live[rank] += forward
                if not forward:
                    weights[rank].append(f"W{chunk}")
                ended[kind, stage, microbatch] = now + 1
                orders[rank].append(f"{kind}{chunk}")
            elif weights[rank]:
                live[rank] -= 1
                orders[rank].append(weights[rank].popleft())
        now += 1
    return orders
