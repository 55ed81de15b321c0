"""Lists in one column, and numbers of rows, against the plain ways to get them."""

import numpy as np
from hypothesis import given, strategies as st

from stepsim.base.arrays import (
    Lists,
    column_numbers,
    first_largest,
    lists_of,
    row_numbers,
)

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 10**6)), min_size=1, max_size=40)


@given(st.lists(st.tuples(*[st.integers(-(10**10), 10**10) | st.integers(0, 2)] * 3), min_size=1))
def test_columns_are_numbered_in_the_order_of_their_rows(rows: list[tuple[int, ...]]) -> None:
    """However wide the columns are: alike rows bear one number, and numbers ascend as rows do."""
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    distinct = sorted(set(rows))
    assert column_numbers(columns).tolist() == [distinct.index(row) for row in rows]


@given(LISTS)
def test_lists_are_what_was_put_in(lists: list[list[int]]) -> None:
    made = Lists.of(lists)
    assert made.tolist() == [tuple(each) for each in lists]
    assert [made[i] for i in range(len(made))] == lists
    assert made.owners.tolist() == [i for i, each in enumerate(lists) for _ in each]
    turned = [
        [i for i, each in enumerate(lists) for v in each if v == value] for value in range(10)
    ]
    pairs = made.values.astype(np.int64) << 32 | made.owners
    assert lists_of(pairs, 10).tolist() == [tuple(each) for each in turned]


@given(ROWS)
def test_rows_are_numbered_as_numpy_numbers_them(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows)
    _, first, number = np.unique(table, axis=0, return_index=True, return_inverse=True)
    found = row_numbers(table)
    assert (found[0].tolist(), found[1].tolist()) == (first.tolist(), number.reshape(-1).tolist())
    _, first, number = np.unique(table[:, 1], return_index=True, return_inverse=True)
    found = row_numbers(table[:, 1:])
    assert (found[0].tolist(), found[1].tolist()) == (first.tolist(), number.tolist())


def test_sums_that_differ_by_rounding_are_the_same() -> None:
    """Who is told as the largest does not depend on the order in which parts were added up."""
    parts, turned = 0.1 + 0.2, 0.3
    assert parts > turned
    assert first_largest(np.array([0.1, turned, parts])) == 1
    assert first_largest(np.array([parts, turned])) == 0
    assert first_largest(np.array([0.3, 0.3 * (1 + 1e-9)])) == 1
    assert first_largest(np.zeros(3)) == 0
