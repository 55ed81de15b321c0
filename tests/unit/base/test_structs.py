"""A copy of a noun with some fields changed is checked as a new noun is."""

from dataclasses import dataclass
from functools import cached_property

import pytest
from msgspec import Struct

from stepsim.base.structs import replace


class Link(Struct, frozen=True, kw_only=True, dict=True):
    bandwidth: float
    name: str = "link"

    def __post_init__(self) -> None:
        if self.bandwidth <= 0:
            raise ValueError(f"bandwidth is {self.bandwidth}")

    @cached_property
    def twice(self) -> float:
        return 2 * self.bandwidth


class Named(Link, frozen=True):
    """A class with the same fields."""


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


def test_the_other_fields_stay() -> None:
    assert replace(Link(bandwidth=1, name="a"), bandwidth=2) == Link(bandwidth=2, name="a")
    assert type(replace(Named(bandwidth=1), bandwidth=2)) is Named
    assert replace(Point(1, 2), x=3) == Point(3, 2)


def test_a_copy_is_checked() -> None:
    with pytest.raises(ValueError, match="bandwidth is -1"):
        replace(Link(bandwidth=1), bandwidth=-1)


def test_what_was_worked_out_is_worked_out_again() -> None:
    link = Link(bandwidth=1)
    assert (link.twice, replace(link, bandwidth=3).twice) == (2, 6)


@pytest.mark.parametrize("noun", [Link(bandwidth=1), Point(1)])
def test_a_field_that_there_is_not_is_refused(noun: object) -> None:
    with pytest.raises(TypeError, match="colour"):
        replace(noun, colour="red")
