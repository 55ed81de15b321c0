"""Dataclasses whose methods are compiled when they are first used.

The library's own compiles up to seven methods as each class is made: a third of the start of a
command, most of them never called. Everything else is the library's: fields, their order,
defaults, slots, `fields` and `replace`. A class that orders its objects or has its own `__eq__` or
`__hash__` is made by the library.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_FEW = 128
"""Objects of a class that are made before its `__init__` is compiled: that takes as long."""
_OWN = ("__eq__", "__hash__", "__setattr__", "__delattr__", "__init__", "__repr__")


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: bool
) -> Any:
    """As `dataclasses.dataclass`."""

    def make(cls: type) -> type:
        own = any(name in cls.__dict__ for name in _OWN)
        if own or options.keys() - {"slots", "kw_only", "repr"}:
            return dataclasses.dataclass(frozen=frozen, eq=eq, **options)(cls)
        return _made(cls, frozen=frozen, eq=eq, **options)

    return make if cls is None else make(cls)


if not TYPE_CHECKING:
    dataclass = _dataclass


def _inherits(cls: type) -> bool:
    return any(map(dataclasses.is_dataclass, cls.__mro__[1:]))


def _made(cls: Any, *, frozen: bool, eq: bool, repr: bool = True, **options: bool) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # the library would spell its arguments out
    of_frozen = frozen and _inherits(cls)  # the library wants to hear of that
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=of_frozen, **options
    )(cls)
    made.__init__ = _init_of_few(made)
    if repr:
        made.__repr__ = _compiled_later(made, "__repr__")
    if eq:
        made.__eq__ = _compiled_later(made, "__eq__")
        made.__hash__ = _compiled_later(made, "__hash__") if frozen else None
    if frozen:
        made.__dataclass_params__.frozen = True
        made.__setattr__ = _refuse("assign to")
        made.__delattr__ = _refuse("delete")
        made.__getstate__, made.__setstate__ = _state, _restore
    return cast("type", made)


def _compiled_later(cls: Any, name: str) -> Callable[..., Any]:
    """A method that is compiled, and put in this one's place, at the first call."""

    def first(self: Any, *given: Any, **named: Any) -> Any:
        method = _of_library(cls, name)
        if getattr(cls, name) is first:
            setattr(cls, name, method)
        return method(self, *given, **named)

    first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return first


def _init_of_few(cls: Any) -> Callable[..., None]:
    """An `__init__` that is worth no compiling until several objects have been made."""
    fields, left = dataclasses.fields(cls), _FEW
    is_checked = hasattr(cls, "__post_init__")

    def init(self: Any, *given: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or given or not _fill(self, fields, named):
            cls.__init__ = method = _of_library(cls, "__init__")
            method(self, *given, **named)
        elif is_checked:
            self.__post_init__()

    return init


def _fill(self: Any, fields: Iterable[Any], named: dict[str, Any]) -> bool:
    """Set all fields; false where one is missing, or something is named that is no field."""
    taken = 0
    for each in fields:
        if each.init and each.name in named:
            value = named[each.name]
            taken += 1
        elif each.default is not dataclasses.MISSING:
            value = each.default
        elif each.default_factory is not dataclasses.MISSING:
            value = each.default_factory()
        elif each.init:
            return False
        else:
            continue
        object.__setattr__(self, each.name, value)
    return taken == len(named)


def _of_library(cls: Any, name: str) -> Callable[..., Any]:
    """A method of a class of the same fields, as the library makes it."""
    fields = dataclasses.fields(cls)
    inside = {each.name: each for each in fields} | {
        "__annotations__": {each.name: each.type for each in fields},
        "__doc__": cls.__doc__,
    }
    if hasattr(cls, "__post_init__"):
        inside["__post_init__"] = cls.__post_init__
    made, shown = name == "__init__", name == "__repr__"
    what = {"init": made, "repr": shown, "eq": not (made or shown)}
    frozen = made and cls.__dataclass_params__.frozen
    library = dataclasses.dataclass(frozen=frozen, unsafe_hash=name == "__hash__", **what)
    method: Any = getattr(library(type(cls.__name__, (), inside)), name)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return cast("Callable[..., Any]", method)


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(_: object, name: str, *__: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

    return refuse


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
