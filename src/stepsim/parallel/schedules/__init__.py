"""Pipeline schedules by name: pure functions from (ranks, microbatches, chunks) to actions."""

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, signature

from stepsim.base.errors import ScheduleError
from stepsim.parallel.schedules.auto_zb import auto_zb
from stepsim.parallel.schedules.base import (
    Action,
    ActionKind,
    FusedPair,
    OrderEntry,
    Placement,
    PlacementKind,
    Schedule,
    not_taken,
)
from stepsim.parallel.schedules.combined_1f1b import combined_1f1b
from stepsim.parallel.schedules.dualpipe import dualpipe, dualpipe_v
from stepsim.parallel.schedules.gpipe import gpipe
from stepsim.parallel.schedules.interleaved import interleaved
from stepsim.parallel.schedules.interleaved_zb import interleaved_zb
from stepsim.parallel.schedules.looped_bfs import looped_bfs
from stepsim.parallel.schedules.one_f_one_b import one_f_one_b
from stepsim.parallel.schedules.v_shape import v_half, v_min
from stepsim.parallel.schedules.zb_h1 import zb_h1
from stepsim.parallel.schedules.zb_v import zb_v

BUILDERS: dict[str, Callable[..., Schedule]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "interleaved": interleaved,
    "combined-1f1b": combined_1f1b,
    "looped-bfs": looped_bfs,
    "interleaved-zb": interleaved_zb,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
    "auto-zb": auto_zb,
}
# Programs whose code runs a schedule: zero-bubble is Sea AI Lab's fork of Megatron-LM.
_RUN_BY: Mapping[str, str] = {
    "1f1b": "Megatron-LM, torch",
    "gpipe": "torch",
    "interleaved": "Megatron-LM, torch",
    "combined-1f1b": "Megatron-LM",
    "looped-bfs": "torch",
    "interleaved-zb": "torch",
    "zb-h1": "zero-bubble",
    "zb-v": "zero-bubble, torch",
    "v-half": "zero-bubble",
    "v-min": "zero-bubble",
    "dualpipe": "DualPipe",
    "dualpipe-v": "DualPipe, torch",
    "auto-zb": "zero-bubble",
}


def run_by(name: str) -> str:
    """Which frameworks run a schedule of a name such as `interleaved:4`; empty if unknown."""
    return _RUN_BY.get(name.partition(":")[0], "")


_SHAPE = ("ranks", "microbatches", "chunks")


def parse_name(text: str) -> tuple[str, int | None]:
    """Name and chunks of `interleaved` or `interleaved:4`; raises ScheduleError if unknown."""
    name, colon, chunks = text.partition(":")
    if name not in BUILDERS:
        raise ScheduleError(f"schedule is {text!r}: expected one of {', '.join(BUILDERS)}")
    if not colon:
        return name, None
    if not re.fullmatch("[0-9]{1,9}", chunks):
        allowed = f"a number of chunks after the colon, such as {name}:2"
        raise ScheduleError(f"schedule is {text!r}: expected {allowed}")
    return name, int(chunks)


def build(
    name: str, *, ranks: int, microbatches: int, chunks: int | None = None, **options: object
) -> Schedule:
    """Schedule of a name such as `1f1b` or `interleaved:4`, with the options it has.

    Without `chunks` it holds as many per rank as it is known for: one, or two. One that takes no
    number of chunks has no other. Raises ScheduleError when the name is unknown, the schedule
    refuses the shape, has no such option or is too large.
    """
    known, named_chunks = parse_name(name)
    if chunks is not None and named_chunks not in (None, chunks):
        raise not_taken(name, "chunks", chunks, f"{named_chunks}")
    _check_options(known, options, options_of(known))
    held = named_chunks if chunks is None else chunks
    if held is not None and "chunks" in _parameters(known):
        options["chunks"] = held
    built = BUILDERS[known](ranks=ranks, microbatches=microbatches, **options)
    if held not in (None, built.placement.chunks):
        raise not_taken(name, "chunks", held, f"{built.placement.chunks}")
    return built


def needs_times(name: str) -> bool:
    """Whether a schedule is searched for, by the times of the stages."""
    return "forward_ps" in options_of(name)


def options_of(name: str) -> list[str]:
    """Options that a schedule has beside ranks, microbatches and chunks; none if unknown."""
    known = name.partition(":")[0]
    return [each for each in _parameters(known) if each not in _SHAPE] if known in BUILDERS else []


def _parameters(name: str) -> Mapping[str, Parameter]:
    """What the builder of a schedule takes."""
    return signature(BUILDERS[name]).parameters


SCHEDULE_OPTIONS = frozenset(option for name in BUILDERS for option in options_of(name))
"""Options that some schedule has beside its shape."""


def _check_options(name: str, options: dict[str, object], known: list[str]) -> None:
    needed = [
        p.name
        for p in _parameters(name).values()
        if p.default is p.empty and p.name in known and p.name not in options
    ]
    if needed:
        raise ScheduleError(f"schedule {name}: needs the options {', '.join(needed)}")
    for option, value in options.items():
        if option not in known:
            allowed = f"the options {', '.join(known)}" if known else "no options"
            raise not_taken(name, f"option {option}", value, allowed)


__all__ = [
    "BUILDERS",
    "SCHEDULE_OPTIONS",
    "Action",
    "ActionKind",
    "FusedPair",
    "OrderEntry",
    "Placement",
    "PlacementKind",
    "Schedule",
    "build",
    "needs_times",
    "options_of",
    "parse_name",
]
