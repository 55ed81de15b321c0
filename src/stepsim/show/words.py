"""Jobs, ranks, actions, communications and axes in words."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps, npu_word
from stepsim.explain.report import CommUse
from stepsim.explain.throughput import Throughput
from stepsim.parallel.modes import Sharing
from stepsim.parallel.schedules import OrderEntry
from stepsim.run.spans import TaskKind
from stepsim.show.palette import ACTION_NAMES
from stepsim.workload.axes import EpLayout, RankOrder
from stepsim.workload.rows import CommOp

_MOST_RUNS = 4
_SHARING = {
    str(Sharing.NONE): "every transfer has its links to itself",
    str(Sharing.SIBLINGS): "groups that act together share links, other transfers do not",
    str(Sharing.FAIR): "all transfers that overlap share links",
}
_EP_LAYOUTS: Mapping[str, str] = {
    EpLayout.DP: " inside dp",
    EpLayout.FOLDED: " folded over tp and dp",
}
_ALWAYS_SHOWN = ("tp", "dp", "pp", "ep")


def degree_words(degrees: Mapping[str, int], ep_layout: str, between: str = ", ") -> str:
    """Degrees, and how expert groups lie: `tp 2, dp 4, pp 1, ep 4 inside dp`."""
    lies = {"ep": _EP_LAYOUTS.get(ep_layout, "") if degrees["ep"] > 1 else ""}
    return between.join(
        f"{name} {size}{lies.get(name, '')}"
        for name, size in degrees.items()
        if size > 1 or name in _ALWAYS_SHOWN
    )


def size_words(
    npus: int,
    degrees: Mapping[str, int],
    microbatches: int,
    rank_order: str,
    ep_layout: str,
    device: str,
) -> str:
    """Size and degrees, how expert groups lie, and how ranks do where it is not the usual way."""
    shown = degree_words(degrees, ep_layout)
    order = "" if rank_order in ("", RankOrder.TP_DP_PP) else f"; {rank_order}"
    return f"{npus} {npu_word(device, npus)}: {shown}; microbatches {microbatches}{order}"


def seconds_words(seconds: float) -> str:
    """A time in seconds, with its unit."""
    return format_time_ps(round(seconds * PS_PER_S))


def range_words(rates: Throughput) -> str:
    """Where 80 % of measured steps of such models lie, e.g. `5.36 s to 6.871 s`; '' if unknown."""
    if rates.low_s is None or rates.high_s is None:
        return ""
    return " to ".join(map(seconds_words, (rates.low_s, rates.high_s)))


def rate_words(value: float) -> str:
    """A rate with its thousands apart, and at least four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def name_ranks(ranks: Sequence[int]) -> str:
    """Ascending ranks in few words, e.g. `rank 3`, `ranks 0-7, 16-23`, `ranks 0-56 step 8`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    steps = {b - a for a, b in pairwise(ranks)}
    if len(steps) == 1 and (step := steps.pop()) > 1 and len(ranks) > 2:
        return f"ranks {ranks[0]}-{ranks[-1]} step {step}"
    runs = list(runs_of(ranks))
    if len(runs) > _MOST_RUNS:
        return f"{len(ranks)} ranks from {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def runs_of(ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers."""
    first = last = ranks[0]
    for rank in ranks[1:]:
        if rank > last + 1:
            yield first, last
            first = rank
        last = rank
    yield first, last


def action_words(entry: OrderEntry) -> str:
    """What an action is, e.g. `forward of microbatch 3, stage 1 (1F3)`."""
    parts = [
        f"{ACTION_NAMES[action.kind]} of microbatch {action.microbatch}, stage {action.stage}"
        for action in entry.parts()
    ]
    return f"{' with '.join(parts)} ({entry.token})"


def message_way(kind: int) -> str:
    """An end of a message, by its `TaskKind`; the number of the stage at its other end follows."""
    return "send to stage " if kind == TaskKind.SEND else "receive from stage "


class CommWords(NamedTuple):
    """A communication: what it is, its size, its algorithms, its time alone; '' where unknown."""

    what: str
    size: str
    algorithm: str
    alone: str


def comm_words(op: CommOp, use: CommUse | None) -> CommWords:
    """A communication, as far as the report knows it."""
    size = format_size_bytes(op.size_bytes)
    if use is None:
        return CommWords(f"{op.group} {op.kind}", size, "", "")
    what = f"{op.group} {op.kind}, {use.ranks} ranks"
    return CommWords(what, size, " or ".join(use.algorithms), format_time_ps(use.time_ps))


def sharing_words(contention: str) -> str:
    """Which transfers share links, by the name of the mode."""
    return f"{contention}: {_SHARING[contention]}" if contention in _SHARING else contention


def settings_words(values: Mapping[str, str]) -> str:
    """What a scenario has on every axis, e.g. `pp=4, schedule=1f1b`."""
    return ", ".join(f"{name}={text}" for name, text in values.items())


def axis_words(name: str) -> str:
    """An axis's name as a label says it."""
    return name.replace(".", " ").replace("_", " ")


def short_value(text: str) -> str:
    """A value's text with at most four digits."""
    number, space, unit = text.partition(" ")
    try:
        return f"{float(number):.4g}{space}{unit}"
    except ValueError:
        return text
