"""Profiles: what they hold, where their steps go, which workers are slow, what would help."""

from itertools import chain

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.units import format_time_ps
from stepsim.documents.table import (
    SHARE,
    TEXT,
    Answer,
    Pairs,
    Sheet,
    Shown,
    Table,
    paths,
    share_of,
    table_of,
)
from stepsim.explain.changes.lengths import UnequalLengths
from stepsim.explain.path import PathPart, critical_parts
from stepsim.explain.replayed import replayed_kinds, replayed_ranks
from stepsim.explain.shares import device_shares, rank_shares
from stepsim.explain.stragglers import Stragglers
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.runs.improve import Improvements

_MOST = 16
_LONGEST = 60
# A delay that makes the step so many times as long is told as a factor.
_MANY = 2
# Less of the step, or of a replica's work, is told as none.
_EQUAL = 0.01


def profile_shown(found: Stragglers) -> Sheet:
    """What a profile holds, where its steps go, and what its slow workers cost."""
    waits = pipeline_waits(found.profile, posted=True)
    mean = _mean(found.profile.step_times_ps())
    yield f"{mean} {_recorded(found.profile)}: {_slowed(found)}"
    yield (*_profile_pairs(found.profile), *_slowdown_pairs(found))
    shares = rank_shares(waits, found.by_rank)
    step_ps = int(found.measured_ps.mean())
    computes = SHARE.of(lambda each: share_of(each.compute_ps, step_ps))
    known = paths(_OF_STAGES if found.by_stage else _OF_RANKS, {"computes": computes})
    yield table_of("mean step of every rank", shares, known, most=_MOST)
    if found.by_stage:
        yield _slowdowns(found)
    else:
        devices = device_shares(found.profile)
        yield table_of("from the first operation to the last", devices, _DEVICES, most=_MOST)
    yield _path_table(critical_parts(waits))


def profile_replay_shown(found: Stragglers) -> Sheet:
    """Every step of a profile, measured and replayed."""
    yield from profile_tables(found).values()


PROFILE_TABLES = ("profile", "steps", "ranks", "operations")
"""Names of what can be shown of a replayed profile."""


def profile_tables(found: Stragglers) -> dict[str, Shown]:
    """What can be shown of a replayed profile, by its name.

    What it holds, how its replay differs from it and what its slow workers cost; steps, ranks and
    kinds of operations, measured and replayed.
    """
    waits, replay = pipeline_waits(found.profile), ("replay", _replay_words(found))
    about = (*_profile_pairs(found.profile), replay, *_slowdown_pairs(found))
    steps = table_of("replay of every step", found.steps, _STEPS, most=_MOST)
    names = paths("rank = name") | _REPLAYED
    caption = "replay of every rank, mean step"
    ranks = table_of(caption, replayed_ranks(waits), names, most=_MOST)
    names = paths("operations = name") | _REPLAYED
    kinds = table_of("kernel time of every kind, over all ranks", replayed_kinds(waits), names)
    return dict(zip(PROFILE_TABLES, (about, steps, ranks, kinds), strict=True))


def profile_answer(found: Stragglers) -> Answer:
    """How long a recorded step takes, how its replay differs from it, and what slows it."""
    profile, measured = found.profile, found.profile.step_times_ps()
    return Answer(
        job=f"{profile.source}   {dict(_profile_pairs(profile))['job']}, {_steps(profile)}",
        time=f"{_mean(measured)} {_recorded(profile)}   {_replay_words(found)}",
        parts=_slowed(found),
        advice="next: --full (all tables), stepsim improve (what would help)",
    )


def _recorded(profile: Profile) -> str:
    """What a time of a profile is of: a step, or all of a recording that marks none."""
    return "per step, recorded" if profile.has_steps else "in the recording, which marks no steps"


def _steps(profile: Profile) -> str:
    """How many steps were recorded, in words."""
    return f"{len(profile.steps)} step{'s' * (len(profile.steps) != 1)}"


_SLOWED = ("slowdown", "host delays", "slowest workers")


def _replay_words(found: Stragglers) -> str:
    """How a replay differs from what it was made of, which says nothing of a prediction."""
    errors = np.abs(found.errors)
    mean, most = f"{errors.mean():.3%}", f"{errors.max():.3%}"
    return f"its own durations, put back in order, differ by {mean} on average, {most} at most"


def improvements_answer(found: Improvements, profile: Profile) -> tuple[str, str]:
    """What would help most, and the step that it is a share of."""
    recorded = f"{format_time_ps(found.measured_ps)} {_recorded(profile)}"
    replayed = f"{format_time_ps(found.replayed_ps)} replayed"
    ideal = f"{found.ceiling:.1%} less with every worker, microbatch and the host ideal"
    step = f"{recorded}   {replayed}   {ideal}"
    if not found.changes:
        return "no change that this profile can judge gains anything", step
    best = found.changes[0]
    return f"{best.name} saves {best.gain:.1%} of the step: {best.what}", step


def improvements_shown(found: Improvements, profile: Profile, *, full: bool = True) -> Sheet:
    """Changes of a profile, the one that gains most first.

    With `full` what was recorded, and why changes cannot be judged; else only which these are.
    """
    yield from improvements_answer(found, profile)
    if full:
        yield _profile_pairs(profile)[:3]
    yield table_of("what would help, by its gain", found.changes, _CHANGES)
    if found.lengths:
        yield _lengths_words(found.lengths)
    yield from (f"{each.name}: {each.what}; if {each.assumed}" for each in found.changes)
    if found.without_gain:
        yield f"no gain: {', '.join(found.without_gain)}"
    if full:
        yield from (f"cannot be judged: {each.name}: {each.why}" for each in found.untold)
    elif found.untold:
        names = ", ".join(each.name for each in found.untold)
        yield f"cannot be judged by this profile: {names} (why: --full)"


def _lengths_words(lengths: UnequalLengths) -> str:
    """What unequal microbatches cost, in a line."""
    longest = f"the replica with most work has {lengths.longest_over_mean:.3f} times the mean"
    if max(lengths.longest_over_mean - 1.0, lengths.waiting) < _EQUAL:
        return f"equal lengths: {longest}, and nothing waits for long microbatches"
    return (
        f"unequal lengths: {lengths.waiting:.1%} of the step is waiting for long microbatches, "
        f"whose work differs by {lengths.work_spread:.1%} (noise {lengths.noise:.1%}); {longest}, "
        f"{lengths.swapped_over_mean:.3f} with whole microbatches swapped"
    )


def _profile_pairs(profile: Profile) -> Pairs:
    stages = {each.stage for each in profile.ranks} - {None}
    replicas = {each.replica for each in profile.ranks} - {None}
    told = f": {len(stages)} stages, {len(replicas)} replicas" if stages and replicas else ""
    job = f"{len(profile.ranks)} worker{'s' * (len(profile.ranks) > 1)}{told}"
    steps = profile.step_times_ps()
    measured = steps.mean(), steps.min(), steps.max()
    mean, low, high = (format_time_ps(int(each)) for each in measured)
    return (
        ("profile", f"{profile.source} ({profile.format})"),
        ("job", job),
        ("recorded", f"{_steps(profile)}, {len(profile.events):,} operations"),
        ("measured step", f"{mean} on average, {low} to {high}"),
    )


def _slowed(found: Stragglers) -> str:
    """What makes steps long, in a line."""
    slow = dict(_slowdown_pairs(found))
    return "   ".join(f"{name} {slow[name]}" for name in _SLOWED if name in slow)


def _slowdown_pairs(found: Stragglers) -> Pairs:
    ranks = ", ".join(map(str, found.slowest))
    last = f"{found.last_stage_share:.0%} of the slowdown goes with it"
    if not found.by_stage:
        return (("host delays", _delayed(found)),)
    return (
        ("ideal step", f"{_mean(found.ideal_ps)}: the mean of computes, the median of transfers"),
        ("slowdown", f"{found.slowdown:.3f} times the ideal step, {_mean(found.prompt_ps)}"),
        ("host delays", _delayed(found)),
        ("last stage", last),
        ("slowest workers", f"rank {ranks}: {found.slowest_share:.0%} of the slowdown"),
    )


def _delayed(found: Stragglers) -> str:
    """How much longer the step takes because of the host: a factor where it is large."""
    factor = found.host_slowdown
    if factor > _MANY:
        return f"make the step {factor:.1f} times as long"
    return f"add {factor - 1:.1%} to the step"


def _mean(steps_ps: Ints) -> str:
    return format_time_ps(int(steps_ps.mean()))


_OF_RANKS = "rank, computing = compute_ps, exposed_ps, idle_ps, computes"
_OF_STAGES = (
    "rank, stage, replica, computing = compute_ps, exposed_ps, idle_ps, computes, slowdown:.3f"
)
_STEPS = paths(
    "step, measured_ps, replayed_ps, difference = error:+.2%, "
    "without host delays = without_host_ps, ideal_ps"
)
_REPLAYED = paths("measured_ps, replayed_ps, difference = error:+.2%, largest")
_DEVICES = paths(
    "rank, span_ps, computing = compute_ps/span_ps, exposed or copying = other_ps/span_ps, "
    "idle = idle_ps/span_ps"
)


def _slowdowns(found: Stragglers) -> Table:
    """Slowdowns with everything ideal but one stage, replica or kind of operation."""
    rows = chain(
        ((f"stage {i}", each) for i, each in enumerate(found.by_stage)),
        ((f"replica {i}", each) for i, each in enumerate(found.by_replica)),
        sorted(found.by_kind.items(), key=lambda item: -item[1]),
    )
    return table_of("everything ideal but", rows, paths("not ideal = 0, slowdown = 1:.3f"))


def _short(name: str) -> str:
    """A kernel's name without what it is made of."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _path_table(parts: tuple[PathPart, ...]) -> Table:
    whole = sum(part.whole_ps for part in parts)
    held = ", other streams before = held_ps" if any(part.held_ps for part in parts) else ""
    shown = {
        "operations": TEXT.of(lambda part: _short(part.name)),
        **paths(f"rank, own_ps, host before = host_ps{held}"),
        "share": SHARE.of(lambda part: share_of(part.whole_ps, whole)),
    }
    return table_of("critical path of a mean step, across ranks", parts, shown, most=_MOST)


_CHANGES = paths("change = name, step_ps, gain, ceiling, least = low, most = high")
