"""The program of a general pipeline runtime: torch's `_PipelineScheduleRuntime`.

Ranks are walked through in rounds; whenever the next entry of a rank has its inputs, it is ordered,
its sends are posted right after it, and the matching receives are posted on the other ranks at that
point of theirs. Compute waits only for what it needs; sends are waited for at the end of the step.
"""

from stepsim.base.errors import ScheduleError
from stepsim.parallel.p2p.steps import Compute, Direction, End, Post, Step, Wait, exchanges
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.check import stuck_words


def overlapped(schedule: Schedule) -> list[list[Step]]:
    """Programs of all ranks. Raises ScheduleError when no order of the entries is possible."""
    orders, placement = schedule.orders, schedule.placement
    moved = [exchanges(schedule, rank) for rank in range(len(orders))]
    steps: list[list[Step]] = [[] for _ in orders]
    posted: list[set[End]] = [set() for _ in orders]
    place = [0] * len(orders)
    while any(p < len(order) for p, order in zip(place, orders, strict=True)):
        progress = False
        for rank, order in enumerate(orders):
            if place[rank] == len(order):
                continue
            needed, leaving = moved[rank][place[rank]]
            if not posted[rank].issuperset(needed):
                continue
            if needed:
                steps[rank].append(Wait(ends=needed))
            steps[rank].append(Compute(place=place[rank]))
            for end in leaving:
                message = end[1]
                steps[rank].append(Post(ends=(end,)))
                far = placement.rank(message.target, message.microbatch)
                arrival: End = (Direction.RECV, message)
                steps[far].append(Post(ends=(arrival,)))
                posted[far].add(arrival)
            place[rank] += 1
            progress = True
        if not progress:
            raise ScheduleError(f"schedule {schedule.name}: {stuck_words(schedule, place)}")
    return steps
