"""Dataclasses whose methods are compiled when they are first used.

The library's own compiles up to seven methods as each class is made: a third of the start of a
command, most of them never called. Everything else is the library's: fields, their order,
defaults, slots, `fields` and `replace`. A class that inherits from another, orders its objects or
has its own `__eq__` or `__hash__` is made by the library.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_OWN = ("__eq__", "__hash__", "__setattr__", "__delattr__", "__init__", "__repr__")


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: bool
) -> Any:
    """As `dataclasses.dataclass`."""

    def make(cls: type) -> type:
        own = any(name in cls.__dict__ for name in _OWN)
        if own or options.keys() - {"slots", "kw_only", "repr"} or _inherits(cls):
            return dataclasses.dataclass(frozen=frozen, eq=eq, **options)(cls)
        return _made(cls, frozen=frozen, eq=eq, **options)

    return make if cls is None else make(cls)


if not TYPE_CHECKING:
    dataclass = _dataclass


def _inherits(cls: type) -> bool:
    return any(map(dataclasses.is_dataclass, cls.__mro__[1:]))


def _made(cls: Any, *, frozen: bool, eq: bool, repr: bool = True, **options: bool) -> type:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    made.__init__ = _compiled_later(made, "__init__", init=True, repr=False, eq=False)
    if repr:
        made.__repr__ = _compiled_later(made, "__repr__", init=False, repr=True, eq=False)
    if eq:
        made.__eq__ = _compiled_later(made, "__eq__", init=False, repr=False, eq=True)
        made.__hash__ = None
    if eq and frozen:
        made.__hash__ = _compiled_later(
            made, "__hash__", init=False, repr=False, eq=True, unsafe_hash=True
        )
    if frozen:
        made.__dataclass_params__.frozen = True
        made.__setattr__ = _refuse("assign to")
        made.__delattr__ = _refuse("delete")
        made.__getstate__, made.__setstate__ = _state, _restore
    return made  # type: ignore[no-any-return]


def _compiled_later(cls: Any, name: str, **what: bool) -> Callable[..., Any]:
    """A method that the library compiles, and puts in this one's place, at the first call."""

    def first(self: Any, *given: Any, **named: Any) -> Any:
        method = _compiled(cls, name, what)
        if getattr(cls, name) is first:
            setattr(cls, name, method)
        return method(self, *given, **named)

    first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return first


def _compiled(cls: Any, name: str, what: dict[str, bool]) -> Callable[..., Any]:
    """A method of a class of the same fields, as the library makes it."""
    fields = dataclasses.fields(cls)
    inside = {
        **{each.name: each for each in fields},
        "__annotations__": {each.name: each.type for each in fields},
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    if hasattr(cls, "__post_init__"):
        inside["__post_init__"] = cls.__post_init__
    frozen = cls.__dataclass_params__.frozen
    twin: Any = dataclasses.dataclass(frozen=frozen, **what)(type(cls.__name__, (), inside))
    method = getattr(twin, name)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method  # type: ignore[no-any-return]


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(_: object, name: str, *__: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

    return refuse


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
