"""Results that are kept beside the object they were made of, for those that ask again."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast
from weakref import finalize

_Object = TypeVar("_Object")
_Key = TypeVar("_Key")
_More = ParamSpec("_More")
_Result = TypeVar("_Result")


class Same(Generic[_Object]):
    """An object as a key: equal to itself alone, whatever it holds."""

    __slots__ = ("it",)

    def __init__(self, it: _Object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it


def keep(known: dict[_Key, _Result], key: _Key, value: _Result, most: int) -> None:
    """Keep a value; where `most` are kept, these are forgotten first.

    Another thread may do so at any moment: who looks a value up takes what `get` gives.
    """
    if len(known) >= most:
        known.clear()
    known[key] = value


def kept_beside(
    function: Callable[Concatenate[_Object, _More], _Result],
) -> Callable[Concatenate[_Object, _More], _Result]:
    """Keep results of a function of an object for as long as others hold the object.

    The results must not hold it themselves.
    """
    every: dict[int, dict[tuple[object, ...], _Result]] = {}

    def of_object(it: _Object, *more: _More.args, **_: _More.kwargs) -> _Result:
        if id(it) not in every:
            every[id(it)] = {}
            finalize(it, every.pop, id(it), None).atexit = False
        known = every[id(it)]
        if more not in known:
            known[more] = cast("Callable[..., _Result]", function)(it, *more)
        return known[more]

    return update_wrapper(cast("Callable[..., _Result]", of_object), function)
