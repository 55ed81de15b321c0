"""Changes of what communications take once everybody is there: overlap, links, buckets."""

import re

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints, bins
from stepsim.base.structs import Noun
from stepsim.explain.changes.made import (
    Changes,
    ProfileChange,
    UntoldChange,
    leaves_node,
)
from stepsim.measured.profile.actions import DATA_PARALLEL
from stepsim.measured.profile.busy import busy_axes
from stepsim.measured.profile.events import Profile, counted, same
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind, TaskPhase

_TWICE = 2
_ALL_THERE_IS = "bandwidth is all they wait for"
_REDUCTION = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)

# Names of groups that share out one layer: what they reduce is no gradient of parameters.
_MODEL_PARALLEL = re.compile(
    r"(?:^|[\W_])e?[tcseu]p(?:[\W_\d]|$)|tensor|context|sequence|expert", re.IGNORECASE
)


def transfer_changes(waits: Waits) -> Changes:
    """Changes of what communications take."""
    yield from _overlaps(waits)
    communicates = waits.profile.events.of_kind(*COMMUNICATIONS)
    what = "collectives and messages take half as long"
    yield _faster(waits, "twice-the-network", what, communicates)
    yield from _links(waits)
    yield from _buckets(waits)


def _overlaps(waits: Waits) -> Changes:
    """Each kind of collective inside forwards and backwards, hidden."""
    profile, own = waits.profile, waits.own_ps
    passes = profile.events.phase != TaskPhase.UPDATE
    collective = profile.events.of_kind(TaskKind.COLLECTIVE) & passes
    for name in profile.names:
        which = profile.named(name) & collective
        if which.any():
            yield ProfileChange(
                waits,
                f"overlap-{name.replace(' ', '-')}",
                f"{name} runs beside computes",
                np.where(which, 0, own),
                "it is hidden as a whole, and slows nothing down",
            )


def _faster(waits: Waits, name: str, what: str, which: Bools) -> ProfileChange:
    """Some communications at twice the bandwidth; at best they take no time."""
    own = waits.own_ps
    halved, none = (np.where(which, each, own) for each in (own // _TWICE, 0))
    return ProfileChange(waits, name, what, halved, _ALL_THERE_IS, none)


def _links(waits: Waits) -> Changes:
    """Twice the NICs for what leaves a node, twice NVLink for what does not."""
    why = ""
    if (waits.profile.column_of_ranks("node") == UNKNOWN).all():
        why = "the run does not say which ranks share a node: give --node-size"
    nothing = np.zeros(len(waits.own_ps), np.bool_)
    inside, outside = (nothing, nothing) if why else leaves_node(waits)
    if len(waits.profile.ranks) == 1:
        why = "only one rank was traced"
    for name, which, where, leaves in (
        ("twice-the-nics", outside, "between nodes", "leaves"),
        ("twice-nvlink", inside, "inside a node", "stays on"),
    ):
        if which.any():
            yield _faster(waits, name, f"communication {where} takes half as long", which)
        else:
            none = f"no traced communication {leaves} a node"
            yield UntoldChange(name=name, why=why or none)


class _Reductions(Noun, eq=False):
    """Gradient reductions of several buckets, in the order of each rank, step and group.

    `earlier[i]` and `later[i]` follow each other there, `second` marks every second pair, from the
    first on. `time_ps` of bytes is what they take.
    """

    earlier: Ints
    later: Ints
    second: Bools
    sizes: Ints
    latency_ps: float
    rate_ps: float
    told: str

    def time_ps(self, size: Ints) -> Floats:
        """What a bucket of some bytes takes."""
        return np.asarray(self.latency_ps + self.rate_ps * size, np.float64)


def _buckets(waits: Waits) -> Changes:
    """Gradient buckets twice and half as large."""
    found = _reductions(waits)
    if isinstance(found, str):
        yield UntoldChange(name="larger-buckets", why=found)
        yield UntoldChange(name="smaller-buckets", why=found)
        return
    yield ProfileChange(
        waits,
        "larger-buckets",
        "gradients are reduced in buckets of twice the bytes",
        _merged(waits, found),
        f"{found.told}; the second of two buckets carries both",
    )
    yield ProfileChange(
        waits,
        "smaller-buckets",
        "gradients are reduced in buckets of half the bytes",
        _halved(waits, found),
        f"{found.told}; half of a bucket is ready half-way between the bucket before and it",
    )


def _reductions(waits: Waits) -> _Reductions | str:
    """Gradient reductions, and what they take by their bytes; a text says what is missing."""
    profile, events, own = waits.profile, waits.profile.events, waits.own_ps
    which = events.of_kind(TaskKind.COLLECTIVE) & profile.called(_REDUCTION.search)
    which &= np.isin(events.phase, (TaskPhase.UNKNOWN, TaskPhase.BACKWARD))
    which &= ~profile.in_group(_MODEL_PARALLEL.search) | profile.in_group(DATA_PARALLEL.search)
    which &= _beside(profile, which)
    if not which.any():
        return "the run names no reduction of gradients that runs beside computes"
    if (events.size_bytes[which] <= 0).any():
        return "the run does not say the bytes of its reductions"
    chosen = events.in_time(np.flatnonzero(which))
    key = same(events.rank, events.step, events.group, events.name)[chosen]
    chosen = chosen[np.argsort(key, kind="stable")]
    number = counted(np.sort(key))
    later = np.flatnonzero(number)
    if not len(later):
        return "gradients are reduced in one bucket a step"
    latency, rate, told = _fitted(events.size_bytes[chosen], own[chosen])
    return _Reductions(
        earlier=chosen[later - 1],
        later=chosen[later],
        second=number[later] % _TWICE == 1,
        sizes=events.size_bytes,
        latency_ps=latency,
        rate_ps=rate,
        told=told,
    )


def _fitted(sizes: Ints, own: Ints) -> tuple[float, float, str]:
    """Latency in ps and ps per byte of collectives, by least squares of their relative errors."""
    whole = float(own.sum()) / float(sizes.sum())
    if len(np.unique(sizes)) < _TWICE:
        return 0.0, whole, "buckets have one size: they are taken to have no latency"
    weight = 1 / np.maximum(own, 1)
    table = np.stack([np.ones(len(sizes)), sizes], axis=1) * weight[:, None]
    latency, rate = np.linalg.lstsq(table, own * weight, rcond=None)[0].tolist()
    if latency <= 0 or rate <= 0:
        return 0.0, whole, "times are proportional to the bytes"
    return (
        latency,
        rate,
        f"a bucket takes {latency / 1e6:.0f} us, and its bytes at {1e3 / rate:.1f} GB/s",
    )


def _beside(profile: Profile, which: Bools) -> Bools:
    """Reductions of a name and group most of which begin beside a compute of their rank.

    A collective that computes wait for is no bucket of gradients.
    """
    events, hidden = profile.events, np.zeros_like(which)
    for places, busy in busy_axes(profile, events.of_kind(TaskKind.COMPUTE)):
        hidden[places] = busy.within(events.start_ps[places], events.end_ps[places]) > 0
    of_group = same(events.rank, events.group, events.name)
    count = bins(of_group)
    some, every = (np.bincount(of_group[each], minlength=count) for each in (which & hidden, which))
    return np.asarray(2 * some > every)[of_group]


def _merged(waits: Waits, found: _Reductions) -> Ints:
    """Every second bucket takes the bytes of the one before, which takes no time."""
    own = waits.own_ps.copy()
    first, last = found.earlier[found.second], found.later[found.second]
    both = found.time_ps(found.sizes[first] + found.sizes[last])
    scale = (own[first] + own[last]) / np.maximum(
        found.time_ps(found.sizes[first]) + found.time_ps(found.sizes[last]), 1
    )
    own[last] = np.rint(both * scale)
    own[first] = 0
    return own


def _halved(waits: Waits, found: _Reductions) -> Ints:
    """A bucket whose first half begins once its half of the gradients is there.

    That is half-way between the arrivals of the bucket before and its own, if the bucket before was
    over then: it hides as much of the half as it begins sooner.
    """
    first, last = found.earlier, found.later
    recorded = own = waits.own_ps
    scale = recorded[last] / np.maximum(found.time_ps(found.sizes[last]), 1)
    half = np.rint(found.time_ps(found.sizes[last] // _TWICE) * scale).astype(np.int64)
    for _ in range(_TWICE):  # as it ran, then as it runs with halves
        ran = waits.ran(own, waits.delay_ps).events
        begin, before = ran.start_ps, ran.end_ps[first]
        sooner = begin[last] - np.maximum((begin[first] + begin[last]) // _TWICE, before)
        own = recorded.copy()
        own[last] = _TWICE * half - np.clip(sooner, 0, half)
    return own
