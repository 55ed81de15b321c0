"""Documents have equal hashes where their content is equal, and only there."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepsim.base.digest import content_hash
from stepsim.base.structs import replace


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: Any
    y: Any = None
    seen: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    x: Any
    y: Any = None


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False).map(lambda value: value + 0.0),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from([*Colour, *Size]),
    st.fractions(max_denominator=9),
    st.text("abc/", max_size=3).map(Path),
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Point, x=inner, y=inner),
        st.builds(Place, x=inner, y=inner),
    ),
    max_leaves=8,
)
ARRAYS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=2000).map(
    lambda values: np.array(values, dtype=np.int64)
)


@given(DOCUMENTS)
def test_a_copy_has_the_same_hash(document: object) -> None:
    copy = pickle.loads(pickle.dumps(document))
    assert content_hash(copy) == content_hash(document)


@given(DOCUMENTS, DOCUMENTS)
def test_other_content_has_another_hash(first: object, second: object) -> None:
    # repr tells apart what == does not: 1, 1.0 and True
    assert (content_hash(first) == content_hash(second)) == (repr(first) == repr(second)) or (
        first == second
    )


@given(st.lists(DOCUMENTS, min_size=1, max_size=4), st.data())
def test_any_changed_element_changes_the_hash(parts: list[object], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(parts) - 1))
    changed = [*parts]
    changed[place] = Point(x=parts[place])
    whole = {"parts": Point(x=tuple(parts))}
    assert content_hash(whole) != content_hash({"parts": Point(x=tuple(changed))})
    assert content_hash(whole) != content_hash({"part": Point(x=tuple(parts))})
    assert content_hash(whole) != content_hash({"parts": Place(x=tuple(parts))})
    assert content_hash(whole) != content_hash({"parts": Point(x=(*parts, None))})


@given(ARRAYS, st.data())
def test_any_changed_number_of_an_array_changes_the_hash(
    numbers: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    changed = numbers.copy()
    changed[data.draw(st.integers(0, len(numbers) - 1))] += 1
    assert content_hash(Point(x=numbers)) == content_hash(Point(x=numbers.copy()))
    assert content_hash(Point(x=numbers)) != content_hash(Point(x=changed))


def test_arrays_differ_in_kind_and_shape() -> None:
    numbers = np.arange(3000)
    assert repr(numbers) == repr(np.where(numbers == 1500, 7, numbers)), "why this module exists"
    different = [
        numbers,
        np.where(numbers == 1500, 7, numbers),
        numbers.astype(np.int32),
        numbers.astype(np.float64),
        numbers.reshape(60, 50),
        numbers.reshape(50, 60),
        numbers.tolist(),
    ]
    assert len({content_hash(each) for each in different}) == len(different)
    assert content_hash(np.arange(6000)[::2]) == content_hash(np.arange(0, 6000, 2))
    assert content_hash(np.int64(5)) == content_hash(5)


def test_kinds_that_python_calls_equal_differ() -> None:
    different = [1, 1.0, True, "1", b"1", Fraction(1), Path("1"), (1,), ((1,),), {1: None}, {1}]
    different += [Colour.RED, Size.RED, "red", None, "None", 0.0, -0.0, 0, "", (), {}]
    assert len({content_hash(each) for each in different}) == len(different)


def test_order_and_containers_that_do_not_count() -> None:
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    assert content_hash({"a": 1}) == content_hash(MappingProxyType({"a": 1}))
    assert content_hash(frozenset({"a", "b"})) == content_hash({"b", "a"})
    assert content_hash([1, 2]) == content_hash((1, 2)) != content_hash((2, 1))
    point = Point(x=1)
    assert content_hash(point) == content_hash(replace(point, seen=3))
    assert content_hash((point, point)) == content_hash((point, Point(x=1)))


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from stepsim.base.digest import content_hash\n"
        "print(content_hash({'a': (1, 2.5, None), 'b': frozenset('xyz')}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = content_hash({"b": frozenset("zyx"), "a": (1, 2.5, None)})
    assert run.stdout.strip() == here
    assert len(here) == 16


def test_what_has_no_content_is_refused() -> None:
    for value in (object(), len, Point, np.array([object()])):
        with pytest.raises(TypeError, match="content hash"):
            content_hash((value,))
