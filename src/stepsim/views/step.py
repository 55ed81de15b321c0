"""A simulated step: the job, where its time goes, what its network carries."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from stepsim.base.axes import PartKind, part_label, parts_of
from stepsim.base.units import format_size_bytes, format_time_ps, npu_word
from stepsim.documents.table import (
    AS_IS,
    BANDWIDTH,
    BAR,
    COUNT,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Column,
    Heads,
    Ordered,
    Pairs,
    Piece,
    Shown,
    Table,
    paths,
    share_of,
    table_of,
)
from stepsim.explain.report import (
    LinkUse,
    RankReport,
    Report,
    ResultDocument,
    StageReport,
    exposed_ps,
)
from stepsim.parallel.modes import Sharing
from stepsim.views.words import memory_words, name_ranks, range_words, size_words
from stepsim.workload.model.evidence import Throughput

_OPTIONAL = ("skew", "host")
IDLE_KEYS = tuple(part.key for part in parts_of(PartKind.IDLE))
_BUBBLE = ("before", "between", "after")
# Which transfers share links, by the name of the mode.
_SHARING = {
    str(Sharing.NONE): "every transfer has its links to itself",
    str(Sharing.SIBLINGS): "groups that act together share links, other transfers do not",
    str(Sharing.FAIR): "all transfers that overlap share links",
}
_MOST_CLASSES = 512
_MOST_STAGES = 16
_MOST_COMMS = 8


STEP_TABLES = ("settings", "parts", "path", "stages", "memory", "communication", "links")
"""Names of what can be shown of a step, in the order in which all of it is shown."""


def step_tables(result: Report, actors: int | None = None) -> dict[str, Shown]:
    """What is known of a step, by its name in `STEP_TABLES`; what is not known is left out.

    `actors` is how many ranks were simulated, where that is known.
    """
    step_ps, path = result.step_time_ps, Counter(result.critical_path_ps)
    tables: dict[str, Shown] = {
        "settings": _run_pairs(result, actors),
        "parts": _shares(_PARTS, "part", part_label, result.breakdown_ps, step_ps),
        "path": _shares(_PATH, "kind", _on_path, dict(path.most_common()), step_ps),
    }
    if result.plan["pp"] > 1:
        tables["stages"] = stages_table(result)
    if any(stage.memory and len(stage.memory.parts) > 1 for stage in result.stages):
        tables["memory"] = _memory_table(result)
    tables["communication"] = _comms_table(result)
    links = [link for link in result.links if link.total_bytes]
    tables["links"] = table_of(_LOAD, links, _LINKS)
    return tables


def job_pairs(result: Report) -> Pairs:
    """The job and the network it runs on."""
    reading = (("reading", result.reading),) if result.reading else ()
    return (
        *reading,
        ("workload", result.workload),
        ("topology", result.topology),
        ("job", size_words(result, result.plan, result.device)),
    )


def _run_pairs(result: Report, actors: int | None) -> Pairs:
    """The job, how it is run, and how long that takes."""
    piped, held = result.plan["pp"] > 1, result.peak_activation_bytes
    pipeline = format_time_ps(result.pipeline_time_ps)
    simulated = f"{actors} of {result.npus} ranks, the others behave alike"
    known = "" if held is None else f", {format_size_bytes(held)}"
    peak = f"{result.peak_activations:,} chunks of microbatches{known}"
    return (
        *job_pairs(result),
        *([("simulated", simulated)] if actors else []),
        ("schedule", f"{result.schedule}, {result.p2p} p2p" if piped else result.schedule),
        *option_pairs(result),
        ("step time", format_time_ps(result.step_time_ps)),
        *_throughput_pairs(result.throughput),
        ("pipeline", f"{pipeline}, {bubble_words(result)}" if piped else pipeline),
        *([("most live activations", peak)] if piped else []),
    )


def bubble_words(result: Report) -> str:
    """The bubble as a share of the pipeline's time, and what it is due to.

    The schedule's own is that of the busiest rank, the zero-bubble rate. A rank that has less to do
    than the busiest one waits for it under any schedule: the rest is due to unequal stages.
    """
    whose = "ranks" if "slow" in result.settings else "stages"
    unequal = max(result.bubble_fraction - result.zero_bubble_rate, 0.0)
    return (
        f"bubble {result.bubble_fraction:.1%}: schedule {result.zero_bubble_rate:.1%}, "
        f"unequal {whose} {unequal:.1%}"
    )


def _throughput_pairs(rates: Throughput | None) -> Pairs:
    """What a step of a model is worth, and what that rests on."""
    if rates is None:
        return ()
    if_fits, word = "" if rates.fits else ", if it fitted", npu_word(rates.device)
    held = memory_words(rates.memory_bytes, rates.capacity_bytes)
    spent = [f"{rates.npu_hours_per_trillion_tokens:,.0f} {word} hours per trillion tokens"]
    if rates.price_per_step is not None:
        run = rates.price_per_step * 1e12 / rates.tokens
        spent += [f"$ {rates.price_per_step:.4g} a step", f"$ {run:,.0f} per trillion tokens"]
    if rates.kwh_per_step is not None:
        spent.append(f"{rates.kwh_per_step:.3g} kWh a step")
    return (
        ("device", f"{rates.device}, {rates.framework}"),
        (
            f"per {word}",
            f"{rates.tokens_per_s:,.1f} tokens/s; TFLOP/s: model {rates.model_tflops:.1f}, "
            f"hardware {rates.hardware_tflops:.1f}; MFU {rates.mfu:.1%}{if_fits}",
        ),
        ("cost", ", ".join(spent) + if_fits),
        *([("memory", f"{held} on the fullest rank")] if held else []),
        *accuracy_pairs(rates),
    )


def accuracy_pairs(rates: Throughput) -> Pairs:
    """How far off such predictions were, and where 80 % of measured steps of such models lie.

    Each was predicted with constants of other sources.
    """
    said = f"not known: no run on {rates.device} with {rates.framework} was compared"
    if rates.error is not None:
        said = f"mean error {rates.error:.1%}"
        if rates.error_median is not None and rates.error_90:
            said += f", median {rates.error_median:.1%}, 90 % within {rates.error_90:.1%}"
        runs = f"{rates.error_runs} runs ({rates.error_source})"
        said += f": {runs}, each predicted without its source"
    words = range_words(rates)
    lies = (("range", f"{words}, where {rates.range_of} lie"),) if words else ()
    return (("accuracy", said), *lies)


def option_pairs(result: Report) -> Pairs:
    """What was asked for that holds for every schedule."""
    settings = "; ".join(f"{name} {text}" for name, text in result.settings.items())
    contention = ": ".join(filter(None, (result.contention, _SHARING.get(result.contention))))
    return (("contention", contention), *([("settings", settings)] if settings else []))


_PARTS = "where the step goes, mean over ranks"
_PATH = "time on the critical path, by kind; the sum is the step time"


def idle_ps(parts: Mapping[str, int]) -> int:
    """The idle time of a step, of all kinds."""
    return sum(parts.get(name, 0) for name in IDLE_KEYS)


def _shares(
    caption: str, head: str, named: Callable[[str], str], parts: Mapping[str, int], step_ps: int
) -> Table:
    """What a step's time is made of."""
    return table_of(
        caption,
        [item for item in parts.items() if item[1]],
        {
            head: TEXT.of(lambda item: named(item[0])),
            "time": TIME.of("1"),
            "share": SHARE.of(lambda item: share_of(item[1], step_ps)),
            "step": BAR.of(lambda item: bar_of(dict([item]), step_ps)),
        },
    )


def stages_table(result: Report) -> Table:
    """Mean over the ranks of each stage: its actions, and parts that add up to the step."""
    stages = result.stages
    optional = [n for n in _OPTIONAL if any(stage.breakdown_ps.get(n) for stage in stages)]
    bubble = {"in actions": "busy", **{f"bubble, {name}": name for name in _BUBBLE}}
    return table_of(
        "stages: time of one forward and one backward, and the parts of the step",
        stages,
        {
            **paths("stage, forward_ps, backward_ps, breakdown_ps.compute"),
            "exposed": TIME.of(lambda stage: exposed_ps(stage.breakdown_ps)),
            **parts_columns((*optional, *IDLE_KEYS)),
            **{name: TIME.of(f"bubble_ps.{key}") for name, key in bubble.items()},
        },
        most=_MOST_STAGES,
        both_ends=True,
        folds=True,
    )


def _memory_table(result: Report) -> Table:
    """What a rank of each stage holds when it holds most, and when that is first so."""
    stages = [stage for stage in result.stages if stage.memory]
    every = [stage.memory for stage in stages if stage.memory]
    names = dict.fromkeys(name for held in every for name in held.parts)
    capacity = (result.throughput.capacity_bytes if result.throughput else None) or 0
    longest = max([capacity, *(held.total_bytes for held in every)])
    return table_of(
        "peak memory per stage, of one rank",
        stages,
        {
            "stage": AS_IS.of("stage"),
            **{name: SIZE.of(f"memory.parts.{name}") for name in names},
            "total": SIZE.of("memory.total_bytes"),
            "share": SHARE.of(lambda stage: share_of(stage.memory.total_bytes, capacity)),
            "memory": BAR.of(lambda stage: bar_of(stage.memory.parts, longest, SIZE)),
            "microbatches held": TEXT.of(lambda stage: "+".join(map(str, stage.memory.kept))),
            "at": TIME.of("memory.at_ps"),
        },
        most=_MOST_STAGES,
        both_ends=True,
        folds=True,
    )


def parts_columns(names: Iterable[str]) -> Heads:
    """The times of some parts in the breakdown of each item."""
    return {part_label(name): TIME.of(f"breakdown_ps.{name}") for name in names}


def _comms_table(result: Report) -> Table:
    """Communications, those that take most time first."""
    shared = any(comm.alone_ps not in (None, comm.time_ps) for comm in result.comms)
    alone = "alone: one call without contention; "
    siblings = result.contention == Sharing.SIBLINGS
    whose = "links shared with the equal groups of its stage" if siblings else "its links to itself"
    caption = (
        f"communication: calls of the busiest rank; {alone * shared}time: one call, {whose} "
        f"(--contention {result.contention})"
    )
    columns = {name: column for name, column in _COMMS.items() if shared or name != "alone"}
    return table_of(caption, result.comms, columns, most=_MOST_COMMS)


def _whose(link: LinkUse) -> str:
    """The three collectives that most of its bytes belong to, and their shares."""
    return ", ".join(
        f"{user.group} {user.kind} {share_of(user.bytes, link.busiest_bytes):.0%}"
        for user in link.users[:3]
    )


_COMMS = {
    "communications": TEXT.of(lambda comm: f"{comm.group} {comm.kind}"),
    **paths("ranks, bytes = size_bytes, count, alone_ps, time_ps"),
    "all times": TIME.of(lambda comm: comm.time_ps * comm.count),
    "algorithm": TEXT.of(lambda comm: " or ".join(comm.algorithms)),
}
_LOAD = "load of links, each direction; busy: share of the step in which the busiest one sends"
_LINKS = paths(
    "links = name, used, bandwidth, all bytes = total_bytes, busiest, its bytes = busiest_bytes, "
    "busy time = busy_ps, busy = utilisation, whose bytes",
    {
        "used": COUNT.of(lambda link: Ordered(f"{link.used}/{link.links}", link.used)),
        "bandwidth": BANDWIDTH.of(lambda link: link.bandwidth_bytes_per_s or "inf"),
        "whose bytes": TEXT.of(_whose),
    },
)


def bars_table(result: ResultDocument) -> Table:
    """A bar per class of ranks; per stage where a document holds none, or too many."""
    classes: dict[int, list[RankReport]] = {}
    for rank in result.ranks:
        classes.setdefault(rank.like, []).append(rank)
    bars: list[tuple[str, RankReport | StageReport]]
    if 0 < len(classes) <= _MOST_CLASSES:
        bars = [
            (name_ranks(sorted({each.rank for each in alike})), alike[0])
            for alike in classes.values()
        ]
        caption = "breakdown of each class of ranks that behave alike"
    else:
        bars = [(f"ranks {s.first_rank}-{s.last_rank}, mean", s) for s in result.stages]
        many = f"; {len(classes):,} classes are too many to list" if classes else ""
        caption = f"breakdown of each stage, mean over its ranks{many}"
    columns = {
        **paths("ranks = 0, stage = 1.stage"),
        "step": BAR.of(lambda bar: bar_of(bar[1].breakdown_ps, result.step_time_ps)),
        **paths("1.breakdown_ps.compute"),
        "exposed": TIME.of(lambda bar: exposed_ps(bar[1].breakdown_ps)),
        "idle": TIME.of(lambda bar: idle_ps(bar[1].breakdown_ps)),
    }
    return table_of(caption, bars, columns)


def _on_path(name: str) -> str:
    own = name in ("compute", "host")
    return name if own else f"{name.removeprefix('exposed_')} communication"


def bar_of(parts: Mapping[str, int], whole: int, sizes: Column = TIME) -> tuple[Piece, ...]:
    """Parts that are not zero side by side, as shares of a whole, with their sizes in words."""
    shares = {name: share_of(size, whole) for name, size in parts.items() if size}
    return tuple(
        Piece(share, name, f"{part_label(name)}: {sizes.text(parts[name])}, {share:.1%}")
        for name, share in shares.items()
    )
