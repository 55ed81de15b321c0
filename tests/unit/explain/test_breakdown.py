"""What a gap between tasks of the compute stream is made of."""

from itertools import permutations

import numpy as np
from hypothesis import given, strategies as st

from stepsim.base.arrays import Lists, ints
from stepsim.base.axes import Part
from stepsim.explain.breakdown import breakdown, find_gaps

Flight = tuple[int, int, Part]
"""Start, duration and part of a transfer."""

FLIGHTS = st.tuples(
    st.sampled_from([5, 5, 7]),
    st.integers(0, 6),
    st.sampled_from([Part.EXPOSED_TP, Part.EXPOSED_DP, Part.EXPOSED_PP]),
)


def parts(flights: list[Flight]) -> list[int]:
    """Parts of a program that computes from 0 to 5, waits for transfers, and computes again."""
    begins, takes, awaited = np.array(flights).T
    kinds = ints([Part.COMPUTE, *awaited, Part.COMPUTE])
    after = Lists.of([(), *[(0,)] * len(flights), range(len(flights) + 1)])
    gaps = find_gaps(kinds, after, np.zeros(len(kinds), bool))
    starts, ends = [0, *begins], [5, *(begins + takes)]
    start, end = (np.array([*each, max(ends)])[:, None] for each in (starts, ends))
    nothing = np.zeros((len(Part), 1), np.int64)
    found: list[int] = breakdown(gaps, start, end, nothing).ravel().tolist()
    assert sum(found) == max(ends)
    return found


@given(st.lists(FLIGHTS, min_size=1, max_size=4))
def test_no_order_of_a_program_decides_between_transfers(flights: list[Flight]) -> None:
    expected = parts(flights)
    for order in permutations(flights):
        assert parts(list(order)) == expected


def test_transfers_that_start_together_count_in_order_of_their_ends() -> None:
    found = parts([(5, 6, Part.EXPOSED_PP), (5, 4, Part.EXPOSED_DP)])
    assert (found[Part.EXPOSED_DP], found[Part.EXPOSED_PP]) == (4, 2)
