"""A simulated step: the job, where its time goes, what its network carries."""

from collections.abc import Iterator, Mapping, Sequence

from stepsim.base.units import format_size_bytes, format_time_ps
from stepsim.parallel.modes import RankOrder
from stepsim.results.document import LinkEntry, ResultDocument, StepDocument
from stepsim.results.report import Report
from stepsim.show.palette import PART_COLOURS
from stepsim.show.tables.model import (
    BANDWIDTH,
    BAR,
    COUNT,
    LONG,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Pairs,
    Piece,
    Setting,
    Shown,
    Table,
    share_of,
)
from stepsim.show.words import name_ranks
from stepsim.workload.axes import part_label

_COLOURS = {part.key: colour for part, colour in PART_COLOURS.items()}
_UNKNOWN = "#bbbbbb"
_OPTIONAL = ("skew", "host")
_BUBBLE = ("head", "inner", "tail")
_MOST_CLASSES = 512
_MOST_STAGES = 16
_MOST_COMMS = 8


def step_shown(report: Report) -> Iterator[Shown]:
    """A step in short: its job, its time, breakdown, stages, communications and links."""
    result = StepDocument.of_report(report)
    simulated = f"{len(report.counts)} of {result.npus} ranks, the others behave alike"
    yield (*job_pairs(result), ("simulated", simulated), *_run_pairs(result))
    yield parts_table(result)
    if result.plan["pp"] > 1:
        yield stages_table(result)
    yield comms_table(result)
    yield links_table([link for link in result.links if link.total_bytes])


def job_pairs(result: StepDocument) -> Pairs:
    """The job and the network it runs on."""
    words = job_words(result.npus, result.plan, result.microbatches, result.rank_order)
    return ("workload", result.workload), ("topology", result.topology), ("job", words)


def job_words(npus: int, plan: Mapping[str, int], microbatches: int, rank_order: str) -> str:
    """Size and degrees of a job, and how ranks lie on the NPUs where it is not the usual way."""
    degrees = ", ".join(f"{name} {size}" for name, size in plan.items())
    order = "" if rank_order in ("", RankOrder.TP_DP_PP) else f"; {rank_order}"
    return f"{npus} NPUs: {degrees}; microbatches {microbatches}{order}"


def _run_pairs(result: StepDocument) -> Pairs:
    """How the job is run, and how long that takes."""
    piped = result.plan["pp"] > 1
    pipeline = format_time_ps(result.pipeline_time_ps)
    rates = f"bubble {result.bubble_fraction:.1%}, zero-bubble rate {result.zero_bubble_rate:.1%}"
    return (
        ("schedule", f"{result.schedule}, {result.p2p} p2p" if piped else result.schedule),
        *_settings(result),
        ("step time", format_time_ps(result.step_time_ps)),
        ("pipeline", f"{pipeline}, {rates}" if piped else pipeline),
    )


def _settings(result: StepDocument) -> Pairs:
    settings = "; ".join(f"{name} {text}" for name, text in result.settings.items())
    return (("settings", settings),) if settings else ()


def option_pairs(result: StepDocument) -> Pairs:
    """What was asked for that holds for every schedule."""
    return ("contention", result.contention), *_settings(result)


def whole_run_pairs(result: StepDocument) -> Pairs:
    """The job and how it is run, with all there is to say."""
    size = result.peak_activation_bytes
    known = "" if size is None else f", {format_size_bytes(size)}"
    peak = f"{result.peak_activations:,} chunks of microbatches{known}"
    return (
        *job_pairs(result),
        ("contention", result.contention),
        *_run_pairs(result),
        *([("most live activations", peak)] if result.plan["pp"] > 1 else []),
    )


def parts_table(result: StepDocument) -> Table:
    """Mean over ranks of each part that is not zero."""
    step_ps = result.step_time_ps
    return Table(
        caption="where the step goes, mean over ranks",
        columns={"part": TEXT, "time": TIME, "share": SHARE},
        rows=tuple(
            (part_label(name), time, share_of(time, step_ps))
            for name, time in result.breakdown_ps.items()
            if time
        ),
    )


def stages_table(result: StepDocument) -> Table:
    """Mean over the ranks of each stage: its actions, and parts that add up to the step."""
    stages = result.stages
    optional = [n for n in _OPTIONAL if any(stage.breakdown_ps.get(n) for stage in stages)]
    names = ("forward", "backward", "compute", "exposed", *optional, *_BUBBLE)
    idle = {"in actions": "busy", **{f"idle, {name}": name for name in _BUBBLE}}
    return Table(
        caption="stages: one forward, one backward; where the step goes",
        columns={
            "stage": COUNT,
            **dict.fromkeys(names, TIME),
            **dict.fromkeys(idle, TIME.on_pages),
        },
        rows=tuple(
            (
                stage.stage,
                stage.forward_ps,
                stage.backward_ps,
                stage.breakdown_ps.get("compute", 0),
                _exposed(stage.breakdown_ps),
                *(stage.breakdown_ps.get(name, 0) for name in (*optional, *_BUBBLE)),
                *(getattr(stage.idle_ps, name, None) for name in idle.values()),
            )
            for stage in stages
        ),
        most=_MOST_STAGES,
        both_ends=True,
    )


def path_table(result: StepDocument) -> Table:
    """What the chain of tasks that sets the step time is made of."""
    parts = {name: time for name, time in result.critical_path_ps.items() if time}
    return Table(
        caption="time on the critical path, by kind; adds up to the step",
        columns={"kind": TEXT, "time": TIME, "share": SHARE, "step": BAR},
        rows=tuple(
            (_on_path(name), time, share_of(time, result.step_time_ps), _bar({name: time}, result))
            for name, time in sorted(parts.items(), key=lambda each: -each[1])
        ),
    )


def comms_table(result: StepDocument) -> Table:
    """Communications, those that take most time first."""
    return Table(
        caption="communications, of the rank that does most; alone: with the links to itself",
        columns={
            "communications": TEXT,
            "ranks": COUNT,
            "bytes": SIZE,
            "count": COUNT,
            "alone": TIME,
            "all alone": TIME.on_pages,
            "algorithm": LONG,
        },
        rows=tuple(
            (
                f"{comm.group} {comm.kind}",
                comm.ranks,
                comm.size_bytes,
                comm.count,
                comm.time_ps,
                comm.time_ps * comm.count,
                " or ".join(comm.algorithms),
            )
            for comm in result.comms
        ),
        most=_MOST_COMMS,
    )


def links_table(links: Sequence[LinkEntry]) -> Table:
    """Classes of links by their busiest link, and whose bytes it carries."""
    return Table(
        caption="links, one direction each; in use: the busiest one's share of the step",
        columns={
            "links": TEXT,
            "used": COUNT,
            "bandwidth": BANDWIDTH,
            "all bytes": SIZE.on_pages,
            "busiest": TEXT,
            "its bytes": SIZE,
            "busy": TIME.on_pages,
            "in use": SHARE,
            "mostly": TEXT.on_terminals,
            "whose bytes": LONG.on_pages,
        },
        rows=tuple(
            (
                link.name,
                Setting(f"{link.used}/{link.links}", link.used),
                link.bandwidth_bytes_per_s or "inf",
                link.total_bytes,
                link.busiest or "-",
                link.busiest_bytes,
                link.busy_ps,
                link.utilisation,
                *_users(link),
            )
            for link in links
        ),
    )


def _users(link: LinkEntry) -> tuple[str, str]:
    """The group that most of a link's bytes belong to, and the three largest collectives."""
    shares = [(user, share_of(user.bytes, link.busiest_bytes)) for user in link.users[:3]]
    mostly = "".join(f"{user.group} {share:.0%}" for user, share in shares[:1])
    return mostly, ", ".join(f"{user.group} {user.kind} {share:.0%}" for user, share in shares)


def bars_table(result: ResultDocument) -> Table:
    """A bar per class of ranks; per stage where a document holds none, or too many."""
    classes: dict[int, list[int]] = {}
    for rank in result.ranks:
        classes.setdefault(rank.like, []).append(rank.rank)
    if 0 < len(classes) <= _MOST_CLASSES:
        first = {rank.like: rank for rank in reversed(result.ranks)}
        bars = [
            (name_ranks(sorted(set(ranks))), first[like].stage, first[like].breakdown_ps)
            for like, ranks in classes.items()
        ]
        caption = "breakdown of each class of ranks that behave alike"
    else:
        bars = [
            (f"ranks {s.first_rank}-{s.last_rank}, mean", s.stage, s.breakdown_ps)
            for s in result.stages
        ]
        many = f"; {len(classes):,} classes are too many to list" if classes else ""
        caption = f"breakdown of each stage, mean over its ranks{many}"
    used = {name for _, _, parts in bars for name, time in parts.items() if time}
    return Table(
        caption=caption,
        columns={"ranks": TEXT, "stage": COUNT, "step": BAR, **_SUMS},
        rows=tuple(
            (ranks, stage, _bar(parts, result), *_sums(parts)) for ranks, stage, parts in bars
        ),
        legend=tuple(_look(name) for name in result.breakdown_ps if name in used),
    )


def runs_bars_table(runs: Mapping[str, StepDocument]) -> Table:
    """A bar per run, mean over its ranks, all on the scale of the longest step."""
    longest = max(runs.values(), key=lambda run: run.step_time_ps)
    used = [name for run in runs.values() for name, time in run.breakdown_ps.items() if time]
    return Table(
        caption="where each step goes, mean over ranks, on one scale",
        columns={"schedule": TEXT, "step": BAR, **_SUMS},
        rows=tuple(
            (name, _bar(run.breakdown_ps, longest), *_sums(run.breakdown_ps))
            for name, run in runs.items()
        ),
        legend=tuple(_look(name) for name in dict.fromkeys(used)),
    )


_SUMS = {"compute": TIME, "exposed": TIME, "bubble": TIME}


def _sums(parts: Mapping[str, int]) -> tuple[int, int, int]:
    """Compute, exposed communication, bubble."""
    return parts.get("compute", 0), _exposed(parts), sum(parts.get(name, 0) for name in _BUBBLE)


def _exposed(parts: Mapping[str, int]) -> int:
    return sum(time for name, time in parts.items() if name.startswith("exposed"))


def _look(name: str) -> tuple[str, str]:
    """A part in words, and its colour."""
    return part_label(name), _COLOURS.get(name, _UNKNOWN)


def _on_path(name: str) -> str:
    own = name in ("compute", "host")
    return name if own else f"{name.removeprefix('exposed_')} communication"


def _bar(parts: Mapping[str, int], scale: StepDocument) -> tuple[Piece, ...]:
    """Parts side by side, as shares of a result's step."""
    pieces, at = [], 0.0
    for name, time in parts.items():
        if time:
            words, colour = _look(name)
            share = share_of(time, scale.step_time_ps)
            pieces.append(Piece(at, share, colour, f"{words}: {format_time_ps(time)}, {share:.1%}"))
            at += share
    return tuple(pieces)
