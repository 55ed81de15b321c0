"""Jobs, ranks, communications and axes in words, alike wherever they are shown."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from stepsim.base.axes import EpLayout, RankOrder
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps, npu_word
from stepsim.explain.report import CommUse, Report
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp

if TYPE_CHECKING:
    from stepsim.runs.explained import LogExplanation

_MOST_RUNS = 4
_EP_LAYOUTS: Mapping[str, str] = {
    EpLayout.DP: " inside dp",
    EpLayout.FOLDED: " folded over tp and dp",
}
_ALWAYS_SHOWN = ("tp", "dp", "pp", "ep")


def degree_words(degrees: Mapping[Any, int], ep_layout: str, between: str = ", ") -> str:
    """Degrees, and how expert groups lie: `tp 2, dp 4, pp 1, ep 4 inside dp`."""
    lies = {"ep": _EP_LAYOUTS.get(ep_layout, "") if degrees["ep"] > 1 else ""}
    return between.join(
        f"{name} {size}{lies.get(name, '')}"
        for name, size in degrees.items()
        if size > 1 or name in _ALWAYS_SHOWN
    )


def size_words(job: Plan | Report, degrees: Mapping[Any, int], device: str) -> str:
    """Size and degrees, how expert groups lie, and how ranks do where it is not the usual way."""
    shown = f"{degree_words(degrees, job.ep_layout)}; microbatches {job.microbatches}"
    order = "" if job.rank_order in ("", RankOrder.TP_DP_PP) else f"; {job.rank_order}"
    return f"{job.npus} {npu_word(device, job.npus)}: {shown}{order}"


def seconds_words(seconds: float) -> str:
    """A time in seconds, with its unit."""
    return format_time_ps(round(seconds * PS_PER_S))


def range_words(rates: "Throughput | LogExplanation") -> str:
    """Where 80 % of measured steps of such models lie, e.g. `5.36 s to 6.871 s`; '' if unknown."""
    if rates.low_s is None or rates.high_s is None:
        return ""
    return " to ".join(map(seconds_words, (rates.low_s, rates.high_s)))


def memory_words(held_bytes: int | None, capacity_bytes: int | None) -> str:
    """What is held of what there is, in bytes, and whether that fits, e.g. `44.25 of 80 GiB`.

    Empty where it is unknown.
    """
    if held_bytes is None or not capacity_bytes:
        return ""
    from stepsim.workload.model.memory import TIGHT_SHARE  # read for models alone

    size, whole = format_size_bytes(held_bytes), format_size_bytes(capacity_bytes)
    number, unit = size.split()
    tight = ": likely out of memory" if held_bytes >= TIGHT_SHARE * capacity_bytes else ""
    said = ": does not fit" if held_bytes > capacity_bytes else tight
    return f"{number if whole.endswith(f' {unit}') else size} of {whole}{said}"


def name_ranks(ranks: Sequence[int], digits: int = 1, most: int = _MOST_RUNS) -> str:
    """Ascending ranks in few words, e.g. `rank 3`, `ranks 0-7, 16-23`, `ranks 0-56 step 8`.

    Of more runs of consecutive ranks than `most` the first and the last are named.
    """
    first, last = f"{ranks[0]:0{digits}}", f"{ranks[-1]:0{digits}}"
    if len(ranks) == 1:
        return f"rank {first}"
    steps = {b - a for a, b in pairwise(ranks)}
    if len(steps) == 1 and (step := steps.pop()) > 1 and len(ranks) > 2:
        return f"ranks {first}-{last} step {step}"
    runs = list(runs_of(ranks))
    if len(runs) > most:
        return f"{len(ranks)} ranks from {first} to {last}"
    names = (f"{a:0{digits}}-{b:0{digits}}" if b > a else f"{a:0{digits}}" for a, b in runs)
    return f"ranks {', '.join(names)}"


def runs_of(ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers."""
    first = last = ranks[0]
    for rank in ranks[1:]:
        if rank > last + 1:
            yield first, last
            first = rank
        last = rank
    yield first, last


def comm_words(op: CommOp, use: CommUse | None) -> str:
    """A communication: what it is, its size, and as far as the report knows it how and how long."""
    what, size = f"{op.group} {op.kind}", format_size_bytes(op.size_bytes)
    if use is None:
        return f"{what}, {size}"
    alone = " or ".join(use.algorithms), format_time_ps(use.time_ps)
    return ", ".join(filter(None, (what, f"{use.ranks} ranks", size, *alone)))


def settings_words(values: Mapping[str, str]) -> str:
    """What a scenario has on every axis, e.g. `pp=4, schedule=1f1b`."""
    return ", ".join(f"{name}={text}" for name, text in values.items())


def axis_words(name: str) -> str:
    """An axis's name as a label says it."""
    return name.replace(".", " ").replace("_", " ")
