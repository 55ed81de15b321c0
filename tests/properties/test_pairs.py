"""A sample of pairs keeps what a sample of pairs promises."""

from itertools import combinations, product

from hypothesis import given, strategies as st
from pairs import in_turn, pairwise

FACTORS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.integers(1, 5).map(lambda count: list(range(count))),
    min_size=2,
    max_size=7,
)


@given(factors=FACTORS)
def test_every_two_values_meet_in_a_row(factors: dict[str, list[int]]) -> None:
    rows = pairwise(factors)
    for one, other in combinations(factors, 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(factors[one], factors[other]))
    assert all(list(row) == list(factors) for row in rows)


def test_every_value_has_its_turn() -> None:
    assert in_turn("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    assert in_turn("a", [1, 2]) == [("a", 1), ("a", 2)]
