"""Changes of what computes and the host take: slow workers, uneven stages, experts, gaps."""

import re
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, distinct
from stepsim.base.structs import Noun
from stepsim.explain.changes.made import (
    Changes,
    Judged,
    ProfileChange,
    UntoldChange,
    programs_of,
)
from stepsim.explain.stragglers import slowest_rank
from stepsim.measured.kernels_beside import alone_times_ps
from stepsim.measured.profile.events import Events, begun, counted, same, unknown
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import UNKNOWN, TaskKind

_EXPERTS = re.compile(r"expert|moe|\bep\d*\b", re.IGNORECASE)
_EXCHANGE = re.compile(r"all_?to_?all|sendrecv|a2a", re.IGNORECASE)
# A worker is slow from so many times the median compute on: healthy ones differ by 1 to 3 %.
_SLOW = 1.1
# Slow workers that are named.
_NAMED = 8
_NOT_TOLD = "the run does not name stages: Kineto and Nsight know no pipeline"


class _Seen(Noun, eq=False, dict=True):
    """Columns that the changes of computes share."""

    waits: Waits
    compute: Bools
    stage: Ints
    program: Ints

    @cached_property
    def work(self) -> Ints:
        """A number for every operation, equal for those of a name, phase and step."""
        return same(self.events.name, self.events.phase, self.events.step)

    @cached_property
    def number(self) -> Ints:
        """The place of every operation among those of its work, chunk and microbatch of a rank."""
        return counted(self.events.rank, self.work, self.events.chunk, self.events.microbatch)

    @cached_property
    def alike(self) -> Ints:
        """Operations of one work, at one place among those of a microbatch where it is told."""
        told = self.events.microbatch != UNKNOWN
        return same(self.work, np.where(told, self.number, UNKNOWN))

    @property
    def events(self) -> Events:
        """The operations."""
        return self.waits.profile.events


def compute_changes(waits: Waits) -> Changes:
    """Changes of what computes and the host take."""
    seen = _Seen(
        waits=waits,
        compute=waits.profile.events.of_kind(TaskKind.COMPUTE),
        stage=waits.profile.column_of_ranks("stage"),
        program=programs_of(waits.profile),
    )
    told = waits.profile.follows is not None
    yield _replaced(seen, slowest_rank(waits if told else pipeline_waits(waits.profile)))
    yield _even_stages(seen)
    yield _even_replicas(seen)
    yield _even_microbatches(seen)
    yield _even_experts(seen)
    yield _unslowed(waits)
    yield from _host(waits)


def _replaced(seen: _Seen, slow_rank: int) -> Judged:
    """The slowest worker, and others as slow, compute as the rest of those that run the same do."""
    waits, events, ranks = seen.waits, seen.events, seen.waits.profile.ranks
    slow = next(i for i, ran in enumerate(ranks) if ran.rank == slow_rank)
    places = [slow, *(place for place in _slow_places(seen) if place != slow)]
    names = sorted(ranks[place].rank for place in places)
    name = f"replace-rank-{slow_rank}" if len(names) == 1 else "replace-slow-ranks"
    mine = np.isin(events.rank, places)
    others = np.isin(seen.program, seen.program[mine]) & ~mine & seen.compute
    if not others.any():
        return UntoldChange(name=name, why="no other rank does the same work")
    stage = ranks[slow].stage
    of_stage = "" if stage is None or len(names) > 1 else f" of stage {stage}"
    several = ", ".join(map(str, names[:_NAMED])) + (", ..." if len(names) > _NAMED else "")
    said = f"rank {slow_rank} computes" if len(names) == 1 else f"ranks {several} compute"
    return ProfileChange(
        waits,
        name,
        f"{said} as the others{of_stage} do",
        _as_mean(waits.own_ps, mine & seen.compute, others, same(seen.alike, seen.program)),
        "its computes take the mean of theirs",
    )


def _slow_places(seen: _Seen) -> list[int]:
    """Places of ranks that compute longer than the median of those that run the same.

    Where most of them do it is no worker that is slow.
    """
    count = len(seen.waits.profile.ranks)
    chosen = np.flatnonzero(seen.compute)
    work = np.bincount(seen.events.rank[chosen], seen.waits.own_ps[chosen], minlength=count)
    program = unknown(count)
    program[seen.events.rank] = seen.program
    found = []
    for number in distinct(program).tolist():
        alike = np.flatnonzero(program == number)
        limit = _SLOW * float(np.median(work[alike]))
        found += alike[work[alike] > limit].tolist()
    return found


def _even_stages(seen: _Seen) -> Judged:
    """Every stage computes equally long; says how much the slowest has to hand over."""
    if seen.stage.max(initial=UNKNOWN) < 1:
        why = "the run has one stage" if (seen.stage == 0).any() else _NOT_TOLD
        return UntoldChange(name="even-stages", why=why)
    waits = seen.waits
    traced, stage = np.unique(seen.stage, return_inverse=True)
    ranks = np.array([sum(each.stage == i for each in waits.profile.ranks) for i in traced])
    work = np.bincount(stage[seen.compute], waits.own_ps[seen.compute], len(traced)) / ranks
    shares = ", ".join(f"{each / work.mean():.2f}" for each in work)
    return ProfileChange(
        waits,
        "even-stages",
        f"every stage computes as long as their mean; stage {traced[work.argmax()]} is the "
        f"slowest; the stages take {shares} of the mean now",
        _scaled(waits.own_ps, seen, stage, ranks),
        "layers can be shared out evenly; messages stay as long",
    )


def _scaled(own: Ints, seen: _Seen, stage: Ints, ranks: Ints) -> Ints:
    """Computes of every stage scaled to the mean of all stages, phase by phase of every step.

    `ranks` of each stage were traced.
    """
    chosen = np.flatnonzero(seen.compute)
    at = same(seen.events.phase, seen.events.step)[chosen], stage[chosen]
    total = np.zeros((bins(at[0]), len(ranks)))
    np.add.at(total, at, own[chosen] / ranks[at[1]])
    factor = total.mean(axis=1, keepdims=True) / np.maximum(total, 1)
    changed = own.copy()
    changed[chosen] = np.rint(own[chosen] * factor[at]).astype(np.int64)
    return changed


def _even_replicas(seen: _Seen) -> Judged:
    events, waits = seen.events, seen.waits
    if len(waits.profile.ranks) < 2:
        return UntoldChange(name="even-replicas", why="one rank was traced")
    return ProfileChange(
        waits,
        "even-replicas",
        "ranks that run the same compute equally long",
        _as_mean(
            waits.own_ps,
            seen.compute,
            seen.compute,
            same(seen.work, seen.program, events.chunk, events.microbatch, seen.number),
        ),
        "their microbatches hold equally much work",
    )


def _even_microbatches(seen: _Seen) -> Judged:
    events = seen.events
    if events.microbatch.max(initial=UNKNOWN) < 1:
        why = "the run does not name microbatches"
        return UntoldChange(name="even-microbatches", why=why)
    alike = same(seen.alike, events.rank, events.chunk)
    return ProfileChange(
        seen.waits,
        "even-microbatches",
        "microbatches of a rank compute equally long",
        _as_mean(seen.waits.own_ps, seen.compute, seen.compute, alike),
        "sequences can be shared out evenly",
    )


def _even_experts(seen: _Seen) -> Judged:
    """Between two exchanges of an expert group all its ranks compute equally long."""
    waits, events, profile = seen.waits, seen.events, seen.waits.profile
    exchange = profile.in_group(_EXPERTS.search) & profile.called(_EXCHANGE.search)
    if not exchange.any():
        why = "the run names no all-to-all of a group of experts, or holds it in its computes"
        return UntoldChange(name="even-experts", why=why)
    own, group = waits.own_ps, unknown(len(profile.ranks))
    group[events.rank[exchange]] = events.group[exchange]
    part = begun(same(events.rank, events.step), events.start_ps, exchange)
    chosen = np.flatnonzero(seen.compute & (group[events.rank] != UNKNOWN))
    rank, had = events.rank[chosen], own[chosen]
    key = same(events.step[chosen], part[chosen], group[rank])
    of_rank = same(key, rank)
    total = np.bincount(of_rank, had)[of_rank]
    wanted = np.bincount(key, had)[key] / np.bincount(group[group != UNKNOWN])[group[rank]]
    changed = own.copy()
    changed[chosen] = np.rint(had * wanted / np.maximum(total, 1)).astype(np.int64)
    return ProfileChange(
        waits,
        "even-experts",
        "ranks of an expert group compute equally long between two exchanges",
        changed,
        "they differ by their tokens alone, and the exchanges stay as long",
    )


def _unslowed(waits: Waits) -> Judged:
    """Kernels beside communication take what they take alone: it holds no SMs, nor memory."""
    alone = alone_times_ps(waits.profile)
    if (alone == UNKNOWN).all():
        why = "no kernel ran both alone, twice, and beside communication"
        return UntoldChange(name="no-comm-sms", why=why)
    return ProfileChange(
        waits,
        "no-comm-sms",
        "kernels beside communication take as long as the same kernels alone",
        np.where((alone != UNKNOWN) & (alone < waits.own_ps), alone, waits.own_ps),
        "communication takes no SMs and no memory bandwidth, and is as fast",
    )


def _host(waits: Waits) -> Changes:
    """No collection of garbage, and no late launch."""
    host = waits.profile.events.of_kind(TaskKind.HOST)
    yield ProfileChange(
        waits,
        "no-gc",
        "the host never stops",
        np.where(host, 0, waits.own_ps),
        "memory is freed elsewhere",
    )
    yield ProfileChange(
        waits,
        "no-host-gaps",
        "operations start when what they wait for has ended",
        waits.own_ps,
        "launches cost nothing",
        is_prompt=True,
    )


def _as_mean(own: Ints, which: Bools, others: Bools, alike: Ints) -> Ints:
    """Operations with the mean of the others that are alike; without any they stay."""
    size, key = bins(alike), alike[others]
    count = np.bincount(key, minlength=size)
    mean = np.bincount(key, own[others], size) / np.maximum(count, 1)
    places = np.flatnonzero(which & (count[alike] > 0))
    changed = own.copy()
    changed[places] = np.rint(mean[alike[places]])
    return changed
