"""Records are dataclasses as the library makes them, whose methods are compiled when used."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from stepsim.base import records


@records.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A record as most are."""

    kind: ClassVar[str] = "link"
    name: str
    bandwidth: float = 1.0
    ends: tuple[int, ...] = field(default_factory=tuple)
    seen: list[int] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.bandwidth <= 0:
            raise ValueError(self.name)


@records.dataclass(slots=True)
class Counter:
    """A record that changes."""

    count: int
    step: int = 1


@records.dataclass(frozen=True, slots=True, kw_only=True)
class Cable(Link):
    """A record that inherits."""

    length: float = 0.0


LINKS = Link(name="a"), Link(name="a", ends=(1, 2)), Link(name="b", bandwidth=2.0, seen=[1])


def plain(cls: type) -> Any:
    """The same class, made by the library."""
    inside = {f.name: copy.copy(f) for f in fields(cls)}
    notes = {f.name: f.type for f in fields(cls)}
    names = {"__annotations__": notes, "__qualname__": cls.__qualname__}
    made = type(cls.__name__, (), inside | names)
    return dataclass(frozen=True, kw_only=True)(made)


def test_they_say_equal_hash_and_print_as_the_librarys() -> None:
    for one in LINKS:
        twin = plain(Link)(**{f.name: getattr(one, f.name) for f in fields(one)})
        assert repr(one) == repr(twin)
        assert hash(one) == hash(twin)
        for other in LINKS:
            assert (one == other) == (one is other)
    assert Link(name="c", seen=[1]) == Link(name="c")
    assert len({*LINKS, Link(name="a")}) == 3


def test_they_are_dataclasses() -> None:
    assert is_dataclass(Link)
    assert [f.name for f in fields(Link)] == ["name", "bandwidth", "ends", "seen"]
    assert replace(LINKS[0], bandwidth=3.0) == Link(name="a", bandwidth=3.0)
    assert dataclasses.asdict(Counter(2)) == {"count": 2, "step": 1}
    assert Link.__match_args__ == ()
    assert Link.kind == "link"
    assert not hasattr(LINKS[0], "__dict__")


def test_they_check_what_they_are_given() -> None:
    with pytest.raises(ValueError, match=r"^x$"):
        Link(name="x", bandwidth=-1)
    link: Any = Link
    for wrong in ({}, {"name": "a", "colour": 1}):
        with pytest.raises(TypeError, match=r"Link.__init__\(\)"):
            link(**wrong)
    with pytest.raises(TypeError):
        link("a")


def test_frozen_ones_do_not_change_and_others_do() -> None:
    frozen: Any = LINKS[0]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        frozen.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del LINKS[0].name
    counter = Counter(1)
    counter.count += counter.step
    assert counter == Counter(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_they_are_copied_and_pickled() -> None:
    for one in (*LINKS, Counter(3, 4), Cable(name="c", length=2.0)):
        assert pickle.loads(pickle.dumps(one)) == copy.copy(one) == copy.deepcopy(one) == one


def test_one_that_inherits_keeps_what_it_inherits() -> None:
    cable = Cable(name="c", length=2.0)
    assert cable.bandwidth == 1.0
    assert repr(cable) == "Cable(name='c', bandwidth=1.0, ends=(), length=2.0)"
    assert cable == replace(cable) != replace(cable, length=1.0)
    assert Link(name="c") != Cable(name="c")
    with pytest.raises(ValueError, match=r"^c$"):
        Cable(name="c", bandwidth=0)
    frozen: Any = cable
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'length'"):
        frozen.length = 1.0


def test_the_first_objects_and_those_behind_them_are_alike() -> None:
    @records.dataclass(frozen=True, slots=True, kw_only=True)
    class Point:
        x: int
        y: int = 2
        seen: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.seen.append(self.x + self.y)

    points = [Point(x=x) for x in range(99)]
    assert [(p.x, p.y, p.seen) for p in points] == [(x, 2, [x + 2]) for x in range(99)]
    assert points[0] == Point(x=0)
    point: Any = Point
    for wrong in ({"y": 1}, {"x": 1, "z": 1}):
        with pytest.raises(TypeError, match=r"Point.__init__\(\)"):
            point(**wrong)


def test_an_init_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first object whose arguments have no names, or behind many that have."""
    made: list[str] = []
    library = records._of_library

    def counted(cls: Any, name: str) -> Any:
        made.append(f"{cls.__name__}.{name}")
        return library(cls, name)

    monkeypatch.setattr(records, "_of_library", counted)

    @records.dataclass(slots=True)
    class Pair:
        one: int
        both: int = field(init=False)
        seen: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            self.both = 2 * self.one

    assert [Pair(one=one).both for one in range(99)] == [*range(0, 198, 2)]
    assert made == []
    wrong: Any = Pair
    with pytest.raises(TypeError, match=r"Pair.__init__\(\)"):
        wrong(one=1, both=2)
    assert [(Pair(one).both, Pair(one).seen) for one in range(3)] == [(0, []), (2, []), (4, [])]
    assert made == ["Pair.__init__"]
