"""Few rows of a product in which every two values of two factors still meet."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from random import Random
from typing import Any

Value = tuple[str, int]
"""A factor, and the number of one of its values."""
Pair = tuple[Value, Value]

TRIES = 20
"""Rows of which the one that meets most is taken."""


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows of values by factor: each two values of two factors stand together in a row.

    Rows are made one after the other, each of some tries that meets most of what has not met.
    Ten factors of two values need 8 rows or so, and their product has 1,024. The same factors give
    the same rows.
    """
    left, chance = set(_pairs(factors)), Random(1)
    rows: list[dict[str, Any]] = []
    while left:
        ordered = sorted(left)
        tries = [_row(factors, chance.choice(ordered), left, chance) for _ in range(TRIES)]
        met, values = max(((_met(row) & left, row) for row in tries), key=lambda one: len(one[0]))
        left -= met
        rows.append({name: factors[name][values[name]] for name in factors})
    return rows


def _pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    """All pairs that must meet, each in the order of names."""
    for one, other in combinations(sorted(factors), 2):
        for first, second in product(range(len(factors[one])), range(len(factors[other]))):
            yield (one, first), (other, second)


def _met(row: Mapping[str, int]) -> set[Pair]:
    return set(combinations(sorted(row.items()), 2))


def _row(
    factors: Mapping[str, Sequence[Any]], first: Pair, left: set[Pair], chance: Random
) -> dict[str, int]:
    """A row that begins with a pair; each value after it makes most pairs of `left`."""
    row = dict(first)
    others = sorted(factors.keys() - row.keys())
    chance.shuffle(others)
    for name in others:
        numbers = list(range(len(factors[name])))
        chance.shuffle(numbers)
        row[name] = max(numbers, key=lambda number: _gain((name, number), row, left))
    return row


def _gain(value: Value, row: Mapping[str, int], left: set[Pair]) -> int:
    """How many pairs of `left` a value makes with those of a row."""
    return sum((min(value, other), max(value, other)) in left for other in row.items())


def in_turn(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs in which every value of both lists stands, as few as there can be."""
    count = max(len(one), len(other))
    return [(one[i % len(one)], other[i % len(other)]) for i in range(count)]
