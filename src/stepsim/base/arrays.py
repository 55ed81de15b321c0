"""Columns of numbers: lists of them, sums and hashes over them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepsim.base.structs import Noun, Numbers
from stepsim.base.units import MAX_INT64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Small = NDArray[np.int32]
"""Numbers of segments, tasks and nodes, of which there are millions."""
Summand = tuple[Ints, Floats]
"""Numbers of things and a value of each; a thing may occur several times."""

_Number = TypeVar("_Number", bound=np.number)
_SPARSE = 16
_ROUNDING = 1e-12
# Bytes that are as good a key as a digest of them.
_PLAIN = 1 << 12


def ints(values: Any) -> Ints:
    """Whole numbers as a column."""
    return np.array(values, np.int64)


class Lists(Noun, kw_only=False, eq=False):
    """Lists of numbers in one column: list i is `values[starts[i]:starts[i + 1]]`."""

    starts: Small
    values: Small

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> Self:
        """Columns of lists of Python's numbers."""
        every = list(lists)
        counts = np.fromiter(map(len, every), np.int64, count=len(every))
        return cls(
            bounds(counts),
            np.fromiter(chain.from_iterable(every), np.int32, count=counts.sum()),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> list[int]:
        starts = self.starts
        values: list[int] = self.values[starts.item(number) : starts.item(number + 1)].tolist()
        return values

    @property
    def counts(self) -> Small:
        """How many numbers each list has."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Small:
        """Which list each value is in."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)

    def tolist(self) -> list[Numbers]:
        """Every list as a tuple of Python's numbers."""
        starts, values = self.starts.tolist(), self.values.tolist()
        return [tuple(values[a:b]) for a, b in pairwise(starts)]


def lists_of(code: Ints, most: int) -> Lists:
    """For each number below `most` the others beside it in `number << 32 | other`, ascending.

    The codes are sorted where they are.
    """
    code.sort()
    return Lists(bounds(np.bincount(code >> 32, minlength=most)), code.astype(np.int32))


def bounds(counts: NDArray[np.integer]) -> Small:
    """Where lists of so many values start in one column, and where the last ends."""
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    return starts


def spans(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> Ints:
    """The numbers from each start on, so many of each, one after the other."""
    ends = counts.cumsum(dtype=np.int64)
    places: Ints = (starts - (ends - counts)).repeat(counts)
    places += np.arange(len(places), dtype=np.int64)
    return places


def rows_of(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of columns of one length, numbers of arrays as Python's."""
    lists = (each.tolist() if isinstance(each, np.ndarray) else each for each in columns)
    return zip(*lists, strict=True)


def slices(count: int, most: int) -> Iterator[slice]:
    """0 to `count` in slices of at most so many: 5 in slices of 2 are 0 to 2, 2 to 4, 4 to 5."""
    return (slice(first, min(first + most, count)) for first in range(0, count, most))


def among(numbers: NDArray[np.integer], wanted: Iterable[int]) -> Bools:
    """Which numbers are some few wanted ones: as `np.isin`, which takes longer for few."""
    found = np.zeros(numbers.shape, np.bool_)
    for number in wanted:
        found |= numbers == number
    return found


def bins(numbers: NDArray[np.integer]) -> int:
    """One more than the largest of some numbers from 0; 0 without any."""
    return int(numbers.max(initial=-1)) + 1


def places_by(numbers: NDArray[np.integer], count: int) -> list[Ints]:
    """Where each of so many numbers stands, ascending: 1, 0, 1 of two are `[1]` and `[0, 2]`."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(count + 1))
    return [order[begin:end] for begin, end in pairwise(ends.tolist())]


def narrowed(numbers: NDArray[np.integer], most: int) -> NDArray[np.integer]:
    """Numbers from 0 to below `most`, in the smallest type that has them."""
    found: NDArray[np.integer] = numbers.astype(np.min_scalar_type(-most), copy=False)
    return found


def add_up(parts: Sequence[Summand]) -> Summand:
    """The distinct numbers of all parts, ascending, and the sum of each one's values."""
    numbers = np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in parts)])
    values = np.concatenate([np.zeros(0), *(values for _, values in parts)])
    if (numbers[1:] > numbers[:-1]).all():
        return numbers, values
    first, place = row_numbers(numbers[:, None])
    return numbers[first], totals(place, values, len(first))


def first_largest(sums: Floats) -> int:
    """The place of the first of the largest sums.

    Sums that differ by less than the order in which they were added up can make are the same.
    """
    return int(np.argmax(sums >= sums.max() * (1 - _ROUNDING)))


def distinct(numbers: NDArray[_Number]) -> NDArray[_Number]:
    """The distinct numbers, ascending: as `np.unique`, which takes longer for few numbers."""
    ordered = np.sort(numbers, axis=None)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def mark_of(parts: Sequence[NDArray[Any]]) -> bytes:
    """What equal columns share: how many bytes they have, and these; of many bytes a digest."""
    size = sum(part.nbytes for part in parts)
    if size <= _PLAIN:
        return b"%d " % size + b"".join(part.tobytes() for part in parts)
    from hashlib import blake2b

    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()


def median_place(values: Ints) -> int:
    """Where the median stands; of an even number of values the lower of both in the middle."""
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def totals(places: Ints, values: Floats, size: int) -> Floats:
    """Sum of the values at each place from 0 to size - 1."""
    sums: Floats = np.bincount(places, values, size).astype(np.float64, copy=False)
    return sums


def medians(places: Ints, values: Ints, size: int) -> Floats:
    """Median of the values at each place from 0 to size - 1; of one without any it means nothing.

    There must be a value.
    """
    ordered = values[np.lexsort((values, places))]
    count = np.bincount(places, minlength=size)
    first = np.cumsum(count) - count
    middle = np.stack((first + np.maximum(count - 1, 0) // 2, first + count // 2))
    both = ordered.take(middle, mode="clip")
    return np.asarray((both[0] + both[1]) / 2)


def distinct_rows(rows: Ints) -> Ints:
    """Distinct rows, ascending."""
    found: Ints = rows[row_numbers(rows)[0]]
    return found


def row_numbers(rows: Ints) -> tuple[Ints, Ints]:
    """The first of each distinct row, in ascending order of rows, and the number of every row.

    As `np.unique` of whole rows gives them, which compares number by number: slower.
    """
    if rows.shape[1] <= len(rows):
        number = column_numbers(rows.T)
    else:  # a few long rows are told apart by their bytes
        known = {row.tobytes(): row for row in rows}
        ordered = sorted(known, key=lambda told: known[told].tolist())
        place = {told: i for i, told in enumerate(ordered)}
        number = ints([place[row.tobytes()] for row in rows])
    first = np.empty(bins(number), np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return first, number


def column_numbers(columns: Iterable[Ints]) -> Ints:
    """A number for every place, from 0, in ascending order of what the columns have there.

    For example the columns `3, 1, 3` and `0, 5, 2` give `1, 0, 2`.
    """
    first, *others = columns
    number = first - first.min(initial=0)
    room = bins(number)
    for column in others:
        beyond = column - column.min(initial=0)
        size = bins(beyond)
        if room * size > len(column):
            number = _ranks(number)
            room = bins(number)
        if room * size > MAX_INT64:
            size, beyond = len(column), _ranks(beyond)
        number = number * size + beyond
        room *= size
    return _ranks(number)


def _ranks(codes: Ints) -> Ints:
    """The place of each number among the distinct ones, ascending."""
    room = bins(codes)
    if room > _SPARSE * len(codes):
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)
    there = np.zeros(room, np.int64)
    there[codes] = 1
    return (np.cumsum(there) - 1).take(codes)


def whole_totals(places: Ints, counts: NDArray[_Number], size: int) -> NDArray[_Number]:
    """Sum of the counts at each of so many places; of hashes modulo 2**64: of equal sets equal."""
    sums = np.zeros(size, counts.dtype)
    np.add.at(sums, places, counts)
    return sums


_Hashes = NDArray[np.uint64]


def mixed(*columns: NDArray[np.int64] | _Hashes) -> _Hashes:
    """One well-spread 64-bit number per row (splitmix64, Steele et al., OOPSLA 2014)."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found
