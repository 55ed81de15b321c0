"""What segments come to wait for, from rows written one after the other; worked out by hand."""

import numpy as np

from stepsim.base.arrays import bounds
from stepsim.graph.programs import COLUMNS, NONE, Joins, Rows, Segments, waits_of

RUN, SEND, RECV = 0, 3, 4
NOTHING = dict.fromkeys(
    ("entry", "end", "peer_stage", "waits", "behind", "sets", "task_list"), NONE
)


def row(
    kind: int = RUN, *, reads: bool = True, joins: Joins = Joins.NOT, **more: int
) -> dict[str, int]:
    return {**NOTHING, "kind": kind, "stream": 0, "reads": reads, "joins": joins, **more}


def waits(*rows: dict[str, int], ends: int = 1, stages: int = 1) -> list[tuple[int, ...]]:
    """What each segment waits for; rows of kind -1 are waits and no segments.

    As many stages as asked for have these rows, one after the other.
    """
    columns = {name: np.array([each[name] for each in rows] * stages) for name in COLUMNS}
    shift = len(rows) * np.arange(stages).repeat(len(rows))
    columns["waits"] += np.where(columns["waits"] >= 0, shift, 0)
    every = Rows.of(bounds(np.array([len(rows)] * stages)), **columns)
    posted = np.full(ends, NONE, dtype=np.int32)
    number = 0
    for each in rows:
        if each["kind"] >= 0:
            if each["end"] >= 0:
                posted[each["end"]] = number
            number += 1
    return waits_of(every, Segments.of(every), posted).tolist()


def test_what_joins_the_front_beside_it_is_waited_for_too() -> None:
    """Two beside each other, then one after both; the front is it alone from there."""
    rows = [row(joins=Joins.BESIDE)] * 2 + [row(joins=Joins.ALONE), row()]
    assert waits(*rows) == [(), (0,), (0, 1), (2,)]


def test_who_does_not_read_the_front_may_wait_for_one_row() -> None:
    rows = [row(joins=Joins.ALONE), row(joins=Joins.ALONE), row(reads=False, waits=0)]
    assert waits(*rows) == [(), (0,), (0,)]


def test_a_queue_is_behind_the_last_that_set_it() -> None:
    """A segment that the front has already is named once."""
    queued, last = row(reads=False, behind=5, sets=5), row(joins=Joins.ALONE)
    assert waits(queued, queued, last) == [(), (0,), ()]
    named = [row(joins=Joins.ALONE, sets=5), row(behind=5)]
    assert waits(*named) == [(), (0,)]
    other = [row(reads=False, sets=5), row(joins=Joins.ALONE), row(behind=5)]
    assert waits(*other) == [(), (), (1, 0)]


def test_a_wait_puts_the_end_of_a_message_on_the_front() -> None:
    """A receipt is posted, then the action waits for it: a wait is a row, and no segment."""
    rows = [
        row(RECV, reads=False, end=1),
        row(joins=Joins.ALONE),
        row(NONE, end=1, joins=Joins.BESIDE),
        row(joins=Joins.ALONE),
    ]
    assert waits(*rows, ends=2) == [(), (), (1, 0)]


def test_stages_do_not_wait_for_each_other() -> None:
    """Each has a front and queues of its own, and numbers its own segments."""
    rows = [
        row(joins=Joins.BESIDE, behind=5, sets=5),
        row(joins=Joins.ALONE),
        row(NONE),
        row(behind=5, sets=5),
        row(reads=False, waits=1),
    ]
    alone = waits(*rows)
    assert alone == [(), (0,), (1, 0), (1,)]
    assert waits(*rows, stages=3) == alone * 3
