"""Kernels of a profile that ran alone and beside communication: how much longer they took.

A kernel is told from another by its name, how it was launched, and its neighbours on its stream. An
execution is beside a communication that covers nine tenths of it, and alone where none covers any;
executions beside another compute kernel are left out, for they share the GPU with that one, too.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from statistics import fmean, median, quantiles
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats, Ints
from stepsim.measured.profile.events import KernelForm, Profile
from stepsim.measured.profile.kernel_classes import OTHER, PRODUCT_FAMILIES, family_of
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN, TaskKind

_ANNOUNCES = re.compile(r"(?:::|deep_ep )\w*notify|dispatch_layout")
"""Kernels of DeepEP that tell sizes before tokens follow: neither compute nor communication."""
_NONE = UNKNOWN, UNKNOWN
_LEAST_BESIDE = 0.9
_MOST_SPREAD = 0.15
_RATIOS = 0.85, 3.0
_FEWEST = 2
_PS_PER_US = 1e6
_NAME = 100


SYNTHETIC = "synthetic"
"""Kind of a communication that `stepsim measure --overlap` stands in for."""
_LOAD = re.compile(r"stepsim_load_(\d+)_blocks_(\d+)_gbs")
_KINDS = (
    (SYNTHETIC, r"stepsim_load"),
    ("all_to_all", r"all_?to_?all|(deep_?ep|dpsk::ep|hybrid_?ep|internode|intranode|nvshmem).*"),
    ("all_reduce", r"all_?reduce"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("broadcast", r"broadcast"),
    ("reduce", r"nccl.*reduce"),
    ("send_recv", r"send_?recv|\bsend\b|\brecv\b"),
    ("copy", r"memcpy p2?to?p|memcpy peer"),
)
_LIBRARIES = re.compile(
    r"stepsim_load|nccl|rccl|deep_?ep|dpsk::ep|hybrid_?ep|nvshmem|memcpy p2?to?p|memcpy peer",
    re.IGNORECASE,
)


class SyntheticLoad(Struct, frozen=True, kw_only=True):
    """A kernel in place of a communication: it holds an SM with each of its `blocks`.

    `bytes_per_s` are what it reads and writes of the memory.
    """

    blocks: int
    bytes_per_s: float = 0.0

    @property
    def name(self) -> str:
        """What its kernel is called, which says both."""
        return f"stepsim_load_{self.blocks}_blocks_{round(self.bytes_per_s / 1e9)}_gbs"

    @classmethod
    def called(cls, kernel: str) -> Self | None:
        """The load whose kernel is called so, None for any other kernel."""
        told = _LOAD.search(kernel)
        return cls(blocks=int(told[1]), bytes_per_s=int(told[2]) * 1e9) if told else None


class BesideRow(Struct, frozen=True, kw_only=True):
    """A kernel that ran alone and beside a communication; a row of the table, times in us.

    `gpu` is what the tool calls the GPU. `comm_kernel` is what covered its executions longest, with
    `comm_blocks` in the first dimension of its grid. `n_alone`, `n_beside` and `n_partly` count
    executions, `share_beside` is how much of those beside was covered; times are medians and
    quartiles. `registers` of a thread and
    `shared_bytes` of a block are 0 where the trace does not tell them.
    """

    gpu: str = ""
    kernel_class: str
    kernel: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shape: str = ""
    comm_kind: str
    comm_kernel: str
    comm_blocks: int = 0
    n_alone: int = _FEWEST
    n_beside: int = _FEWEST
    n_partly: int = 0
    alone_us: float
    alone_p25_us: float
    alone_p75_us: float
    beside_us: float
    beside_p25_us: float
    beside_p75_us: float
    share_beside: float = 1.0
    registers: int = 0
    shared_bytes: int = 0

    @property
    def ratio(self) -> float:
        """How many times as long it took beside the communication."""
        return self.beside_us / self.alone_us

    @property
    def is_clean(self) -> bool:
        """Whether executions alone lie close together, and the ratio is one of a single size."""
        spread = (self.alone_p75_us - self.alone_p25_us) / self.alone_us
        return spread <= _MOST_SPREAD and _RATIOS[0] <= self.ratio <= _RATIOS[1]

    @property
    def is_product(self) -> bool:
        """Whether matrix units bound it, and its name does not say otherwise."""
        by_name = family_of(self.kernel)
        return self.kernel_class in PRODUCT_FAMILIES and by_name in (*PRODUCT_FAMILIES, OTHER)

    @property
    def blocks(self) -> int:
        """Blocks of its grid, 0 where they are not told."""
        return prod(self.grid) if self.grid else 0

    @property
    def threads(self) -> int:
        """Threads of a block, 0 where they are not told."""
        return prod(self.block) if self.block else 0


def comm_kind_of(kernel: str) -> str:
    """What a kernel communicates, by its name; empty for one that does not."""
    if not _LIBRARIES.search(kernel):
        return ""
    return next(
        (kind for kind, words in _KINDS if re.search(words, kernel, re.IGNORECASE)), "other"
    )


def beside_rows(profile: Profile, *, apart: bool = False) -> list[BesideRow]:
    """Every kernel that ran at least twice alone and twice beside communication, on any rank.

    Ranks of one kind of GPU are pooled, and so is all communication that a kernel ran beside,
    unless it has a row for each, `apart`. Rows are ordered by kernel.
    """
    groups = _grouped(profile)
    rows = (
        _row(identity, part, profile)
        for identity, ran in groups.items()
        for part in (_by_communication(ran, profile) if apart else (ran,))
    )
    return sorted(filter(None, rows), key=lambda row: (row.kernel, row.grid, row.block, row.shape))


def alone_times_ps(profile: Profile) -> Ints:
    """What every operation takes alone: the median of its kernel's executions alone, in ps.

    `UNKNOWN` for an operation that ran alone itself, and for one whose kernel did less than twice.
    """
    found = np.full(len(profile.events), UNKNOWN, dtype=np.int64)
    for ran in _grouped(profile).values():
        alone = [each.took_ps for each in ran if not each.share]
        if len(alone) >= _FEWEST:
            found[[each.place for each in ran if each.share]] = round(median(alone))
    return found


def _grouped(profile: Profile) -> "dict[_Identity, list[_Execution]]":
    groups: dict[_Identity, list[_Execution]] = {}
    for rank in range(len(profile.ranks)):
        for execution in _executions(profile, rank):
            groups.setdefault(execution.identity, []).append(execution)
    return groups


class _Identity(NamedTuple):
    """What tells a kernel from another: places in the profile's names and forms.

    `before` and `after` are those of its neighbours.
    """

    gpu: str
    name: int
    form: int
    before: tuple[int, int]
    after: tuple[int, int]


class _Execution(NamedTuple):
    """One run of a kernel at a `place`; `comm` is the operation that covered most of it, if any."""

    identity: _Identity
    place: int
    took_ps: int
    share: float
    comm: int


class _Communications(NamedTuple):
    """What communicates on a rank, by its start: operations, and the time that any of them took."""

    places: Ints
    start: Ints
    end: Ints
    edges: Ints
    covered: Ints

    @classmethod
    def of(cls, profile: Profile, places: Ints) -> "_Communications":
        """Those of some operations of a profile."""
        events = profile.events
        ordered = places[np.argsort(events.start_ps[places], kind="stable")]
        start, end = events.start_ps[ordered], events.end_ps[ordered]
        edges, covered = _union(start, end)
        return cls(ordered, start, end, edges, covered)

    def share(self, start: Ints, end: Ints) -> Floats:
        """Which part of each span any of them covers; 0 for spans without a length."""
        both = [np.interp(times, self.edges, self.covered) for times in (start, end)]
        return np.asarray((both[1] - both[0]) / np.maximum(end - start, 1), dtype=np.float64)

    def longest(self, start: int, end: int) -> int:
        """The operation that covers most of a span; the first of those that cover it alike."""
        common = np.minimum(self.end, end) - np.maximum(self.start, start)
        return int(self.places[np.argmax(common)])


def _union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Edges of the time that any of some spans takes, and how much of it has passed at each.

    Spans 0-10, 5-20 and 30-31 have edges 0, 20, 30, 31 where 0, 20, 20 and 21 have passed.
    """
    if not len(start):
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    reach = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > reach[:-1])
    begins, ends = start[first], reach[np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)]
    edges = np.stack((begins, ends), axis=1).ravel()
    passed = np.cumsum(ends - begins)
    covered = np.stack((np.append(0, passed[:-1]), passed), axis=1).ravel()
    return edges, covered


def _executions(profile: Profile, rank: int) -> Iterator[_Execution]:
    """Runs of kernels of a rank that no other kernel of compute ran beside."""
    events = profile.events
    own = np.flatnonzero((events.rank == rank) & (events.end_ps != UNKNOWN))
    own = own[np.argsort(events.start_ps[own], kind="stable")]
    talks = np.array([bool(comm_kind_of(name)) for name in profile.names])
    silent = np.array([bool(_ANNOUNCES.search(name)) for name in profile.names])
    told = events.of_kind(*COMMUNICATIONS)[own] | talks[events.name[own]]
    announces = silent[events.name[own]]
    comms = _Communications.of(profile, own[told & ~announces])
    work = own[~told & ~announces & (events.kind[own] != TaskKind.HOST)]
    share = comms.share(events.start_ps[work], events.end_ps[work])
    alone = ~_beside_others(profile, work)
    gpu = profile.ranks[rank].gpu
    for stream in np.unique(events.stream[work]).tolist():
        of_stream = np.flatnonzero(events.stream[work] == stream)
        columns = (events.name, events.form)
        kernels = list(zip(*(column[work[of_stream]].tolist() for column in columns), strict=True))
        around = zip([_NONE, *kernels], kernels, [*kernels[1:], _NONE], strict=False)
        for i, (before, (name, form), after) in zip(of_stream.tolist(), around, strict=True):
            place, covered = int(work[i]), float(share[i])
            start, end = int(events.start_ps[place]), int(events.end_ps[place])
            if alone[i] and end > start:
                identity = _Identity(gpu, name, form, before, after)
                comm = comms.longest(start, end) if covered else UNKNOWN
                yield _Execution(identity, place, end - start, covered, comm)


def _beside_others(profile: Profile, work: Ints) -> Bools:
    """Which operations of a rank have a kernel of compute beside them, on another stream."""
    events = profile.events
    found = np.zeros(len(work), dtype=bool)
    kernels = work[events.kind[work] == TaskKind.COMPUTE]
    for stream in np.unique(events.stream[work]).tolist():
        others = kernels[events.stream[kernels] != stream]
        spans = _Communications.of(profile, others)
        own = events.stream[work] == stream
        found[own] = spans.share(events.start_ps[work[own]], events.end_ps[work[own]]) > 0
    return found


def _by_communication(ran: Sequence[_Execution], profile: Profile) -> Iterator[list[_Execution]]:
    """Executions beside each communication by its name, each time with those alone."""
    names = profile.events.name
    alone = [each for each in ran if each.comm == UNKNOWN]
    beside = [each for each in ran if each.comm != UNKNOWN]
    for name in sorted({int(names[each.comm]) for each in beside}):
        yield alone + [each for each in beside if names[each.comm] == name]


def _row(identity: _Identity, ran: Sequence[_Execution], profile: Profile) -> BesideRow | None:
    alone = [each.took_ps for each in ran if not each.share]
    beside = [each for each in ran if each.share >= _LEAST_BESIDE]
    if min(len(alone), len(beside)) < _FEWEST:
        return None
    comm = Counter(each.comm for each in beside).most_common(1)[0][0]
    form, events = _form(profile, identity.form), profile.events
    name, comm_name = profile.names[identity.name], profile.names[events.name[comm]]
    comm_form = _form(profile, int(events.form[comm]))
    low, middle, high = _quartiles(alone)
    beside_low, beside_middle, beside_high = _quartiles([each.took_ps for each in beside])
    return BesideRow(
        gpu=identity.gpu,
        kernel_class=family_of(name),
        kernel=name[:_NAME],
        grid=form.grid,
        block=form.block,
        shape=form.shape,
        comm_kind=comm_kind_of(comm_name),
        comm_kernel=comm_name[:_NAME],
        comm_blocks=comm_form.grid[0] if comm_form.grid else 0,
        n_alone=len(alone),
        n_beside=len(beside),
        n_partly=len(ran) - len(alone) - len(beside),
        alone_us=middle,
        alone_p25_us=low,
        alone_p75_us=high,
        beside_us=beside_middle,
        beside_p25_us=beside_low,
        beside_p75_us=beside_high,
        share_beside=fmean(each.share for each in beside),
        registers=form.registers,
        shared_bytes=form.shared_bytes,
    )


def _form(profile: Profile, place: int) -> KernelForm:
    return profile.forms[place] if place >= 0 else KernelForm()


def _quartiles(times_ps: Sequence[int]) -> tuple[float, float, float]:
    """First quartile, median and third quartile of times, in us."""
    low, middle, high = quantiles(times_ps, n=4)
    return low / _PS_PER_US, middle / _PS_PER_US, high / _PS_PER_US
