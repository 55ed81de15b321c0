"""Kernels of a profile that ran alone and beside communication: how much longer they took.

A kernel is told from another by its name, how it was launched, and its neighbours on its stream. An
execution is beside a communication that covers nine tenths of it, and alone where none covers any;
executions beside another compute kernel are left out, for they share the GPU with that one, too.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from statistics import fmean, quantiles
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats, Ints, column_numbers, distinct, medians
from stepsim.measured.profile.events import KernelForm, Profile
from stepsim.measured.profile.kernel_classes import OTHER, PRODUCT_FAMILIES, family_of
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN, TaskKind

_ANNOUNCES = re.compile(r"(?:::|deep_ep )\w*notify|dispatch_layout")
"""Kernels of DeepEP that tell sizes before tokens follow: neither compute nor communication."""
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
    ran = _executions(profile, with_comms=True)
    order = np.argsort(ran.kernel, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(ran.kernel[order])) + 1)
    rows = (
        _row(part, profile)
        for group in sorted(groups, key=lambda places: places[:1].tolist())
        for part in (_by_communication(ran.taken(group), profile) if apart else (ran.taken(group),))
    )
    return sorted(filter(None, rows), key=lambda row: (row.kernel, row.grid, row.block, row.shape))


def alone_times_ps(profile: Profile) -> Ints:
    """What every operation takes alone: the median of its kernel's executions alone, in ps.

    `UNKNOWN` for an operation that ran alone itself, and for one whose kernel did less than twice.
    """
    found = np.full(len(profile.events), UNKNOWN, dtype=np.int64)
    ran = _executions(profile)
    is_alone = ran.share == 0
    count = np.bincount(ran.kernel[is_alone], minlength=int(ran.kernel.max(initial=0)) + 1)
    told = np.flatnonzero(~is_alone & (count[ran.kernel] >= _FEWEST))
    if len(told):
        median = np.rint(medians(ran.kernel[is_alone], ran.took_ps[is_alone], len(count)))
        found[ran.place[told]] = median[ran.kernel[told]].astype(np.int64)
    return found


class _Executions(NamedTuple):
    """Runs of kernels in columns: what each took at a `place`, and how much of that was covered.

    `comm` is the operation that covered most of it, if any. A `kernel` is told from another by the
    kind of GPU and the stage, its name and form, and those of its neighbours on its stream: one
    name may be the work of a whole stage, and stages differ.
    """

    kernel: Ints
    place: Ints
    took_ps: Ints
    share: Floats
    comm: Ints

    def taken(self, which: Ints | Bools) -> "_Executions":
        """Some of them."""
        numbers = (self.kernel, self.place, self.took_ps)
        kernel, place, took_ps = (column[which] for column in numbers)
        return _Executions(kernel, place, took_ps, self.share[which], self.comm[which])


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


def _executions(profile: Profile, *, with_comms: bool = False) -> _Executions:
    """Runs of kernels that no other kernel of compute ran beside, rank by rank.

    What covered them is told `with_comms` alone.
    """
    events, names = profile.events, profile.names
    talks, silent = (
        np.array([*map(bool, map(is_such, names))])[events.name]
        for is_such in (comm_kind_of, _ANNOUNCES.search)
    )
    told = (events.of_kind(*COMMUNICATIONS) | talks) & ~silent
    works = ~told & ~silent & (events.kind != TaskKind.HOST)
    gpus = [ran.gpu for ran in profile.ranks]
    parts = []
    for rank, places in enumerate(profile.places_of_ranks()):
        own = places[events.end_ps[places] != UNKNOWN]
        own = own[np.argsort(events.start_ps[own], kind="stable")]
        comms, work = _Communications.of(profile, own[told[own]]), own[works[own]]
        work = work[np.argsort(events.stream[work], kind="stable")]
        kernels = _with_neighbours(profile, work)
        start, end = events.start_ps[work], events.end_ps[work]
        share, chosen = comms.share(start, end), ~_beside_others(profile, work) & (end > start)
        comm = np.full(len(work), UNKNOWN, dtype=np.int64)
        for i in np.flatnonzero(chosen & (share != 0)).tolist() if with_comms else ():
            comm[i] = comms.longest(int(start[i]), int(end[i]))
        gpu = np.full(len(work), gpus.index(gpus[rank]))
        stage = np.full(len(work), UNKNOWN if (at := profile.ranks[rank].stage) is None else at)
        columns = (*kernels, gpu, stage, work, end - start, share, comm)
        parts.append([column[chosen] for column in columns])
    *kernels, place, took, share, comm = map(np.concatenate, zip(*parts, strict=True))
    return _Executions(column_numbers(kernels), place, took, share, comm)


def _with_neighbours(profile: Profile, work: Ints) -> list[Ints]:
    """Name and form of operations stream by stream, of the ones before them and of those after."""
    events, count, found = profile.events, len(work), list[Ints]()
    other = events.stream[work[1:]] != events.stream[work[:-1]]
    for column in (events.name[work], events.form[work]):
        before, after = np.full((2, count), UNKNOWN, dtype=np.int64)
        before[1:], after[:-1] = column[:-1], column[1:]
        before[1:][other] = after[:-1][other] = UNKNOWN
        found += [column, before, after]
    return found


def _beside_others(profile: Profile, work: Ints) -> Bools:
    """Which operations of a rank have a kernel of compute beside them, on another stream."""
    events = profile.events
    found = np.zeros(len(work), dtype=bool)
    kernels = work[events.kind[work] == TaskKind.COMPUTE]
    for stream in distinct(events.stream[work]).tolist():
        others = kernels[events.stream[kernels] != stream]
        if len(others):
            spans = _Communications.of(profile, others)
            own = events.stream[work] == stream
            found[own] = spans.share(events.start_ps[work[own]], events.end_ps[work[own]]) > 0
    return found


def _by_communication(ran: _Executions, profile: Profile) -> Iterator[_Executions]:
    """Executions beside each communication by its name, each time with those alone."""
    name = np.where(ran.comm == UNKNOWN, UNKNOWN, profile.events.name[ran.comm])
    for number in distinct(name[name != UNKNOWN]).tolist():
        yield ran.taken((name == UNKNOWN) | (name == number))


def _row(ran: _Executions, profile: Profile) -> BesideRow | None:
    alone, beside = ran.taken(ran.share == 0), ran.taken(ran.share >= _LEAST_BESIDE)
    if min(len(alone.place), len(beside.place)) < _FEWEST:
        return None
    comm = Counter(beside.comm.tolist()).most_common(1)[0][0]
    events, place = profile.events, int(ran.place[0])
    form, gpu = _form(profile, int(events.form[place])), profile.ranks[int(events.rank[place])].gpu
    name, comm_name = (profile.names[events.name[i]] for i in (place, comm))
    comm_form = _form(profile, int(events.form[comm]))
    low, middle, high = _quartiles(alone.took_ps.tolist())
    beside_low, beside_middle, beside_high = _quartiles(beside.took_ps.tolist())
    return BesideRow(
        gpu=gpu,
        kernel_class=family_of(name),
        kernel=name[:_NAME],
        grid=form.grid,
        block=form.block,
        shape=form.shape,
        comm_kind=comm_kind_of(comm_name),
        comm_kernel=comm_name[:_NAME],
        comm_blocks=comm_form.grid[0] if comm_form.grid else 0,
        n_alone=len(alone.place),
        n_beside=len(beside.place),
        n_partly=len(ran.place) - len(alone.place) - len(beside.place),
        alone_us=middle,
        alone_p25_us=low,
        alone_p75_us=high,
        beside_us=beside_middle,
        beside_p25_us=beside_low,
        beside_p75_us=beside_high,
        share_beside=fmean(beside.share.tolist()),
        registers=form.registers,
        shared_bytes=form.shared_bytes,
    )


def _form(profile: Profile, place: int) -> KernelForm:
    return profile.forms[place] if place >= 0 else KernelForm()


def _quartiles(times_ps: Sequence[int]) -> tuple[float, float, float]:
    """First quartile, median and third quartile of times, in us."""
    low, middle, high = quantiles(times_ps, n=4)
    return low / _PS_PER_US, middle / _PS_PER_US, high / _PS_PER_US
