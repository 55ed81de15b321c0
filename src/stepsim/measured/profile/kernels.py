"""Which kernels communicate: a table of libraries, and the parts of names that tell them.

A kernel's name is taken apart first: `void dpsk::ep::internode::combine<false, 8>(int4*)` has the
parts `dpsk`, `ep`, `internode` and `combine`. What it is made of and takes, in angle brackets and
in round ones, says nothing of what it does: a product may take a buffer of a library.
"""

import re

from stepsim.base.structs import Names, Noun, TomlTable, shipped

_SKIPPED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\(unnamed\)::|_NV_ANON_NAMESPACE::")
_LENGTH = re.compile(r"(\d{1,3})(?=\D)")
_ENDING = re.compile(r"_?kernel(?:_impl)?$", re.IGNORECASE)
_COLLECTIVES = "all[-_]?reduce|reduce[-_]?scatter|all[-_]?gather|all[-_]?to[-_]?all|send[-_]?recv"


class KernelLibrary(TomlTable):
    """A library whose kernels communicate, and where its names stand, as `kernels.toml` says."""

    name: str
    pattern: str
    source: str
    local: str = r"^$"


class _NamesFile(Noun):
    library: tuple[KernelLibrary, ...]
    collectives: dict[str, str]
    specific: tuple[dict[str, str], ...]
    general: tuple[dict[str, str], ...]


def kernel_names() -> _NamesFile:
    """The patterns of names, in the order in which they are asked."""
    return shipped(__file__, "kernels.toml", _NamesFile)


_CALLED = re.compile(rf"{_COLLECTIVES}|broadcast|reduce|generic", re.IGNORECASE)


def communication_kernel(name: str) -> str:
    """What a kernel that communicates is called in short, `deep_ep combine`; empty for others.

    The words are the library's and the kernel's own name, without what it is made of; those of
    NCCL's are the collective's.
    """
    parts = name_parts(name)
    path = "::".join(parts)
    for library in kernel_names().library:
        if re.search(library.pattern, path):
            local = re.search(library.local, parts[-1], re.IGNORECASE)
            return "" if local else f"{library.name} {_own_name(library.name, parts[-1])}"
    return ""


def name_parts(name: str) -> Names:
    """The scopes of a kernel's name and its own, without types: at least one, maybe empty."""
    if name.startswith("_Z"):
        return _mangled_parts(name) or (name,)
    depth, kept = 0, list[str]()
    for letter in _SKIPPED.sub("", name):
        if letter in "<(":
            if letter == "(" and not depth and kept:
                break
            depth += 1
        elif letter in ">)":
            depth = max(depth - 1, 0)
        elif not depth:
            kept.append(letter)
    words = "".join(kept).split()
    return tuple(words[-1].split("::")) if words else ("",)


def is_peer_copy(name: str) -> bool:
    """Whether a copy goes from one device to another, as copy engines carry collectives.

    CUPTI calls it `Memcpy PtoP (Device -> Device)`, or tells that its ends are two devices.
    """
    return "ptop" in name.lower() or "peer" in name.lower()


def _mangled_parts(name: str) -> Names:
    """The names of `_ZN7deep_ep9internode8dispatchE...`: each has its length before it.

    Only scopes begin with an N; without it one name stands alone, and its types follow.
    """
    found, scoped = list[str](), name.startswith("_ZN")
    place = 3 if scoped else 2
    while (length := _LENGTH.match(name, place)) and (scoped or not found):
        place = length.end() + int(length[1])
        found.append(name[length.end() : place])
    return tuple(each for each in found if each != "_GLOBAL__N_1")


def _own_name(library: str, name: str) -> str:
    called = _CALLED.search(name) if library == "nccl" else None
    return called[0] if called else _ENDING.sub("", name) or name
