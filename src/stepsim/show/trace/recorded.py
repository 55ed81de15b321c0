"""Recorded steps told as processes: a process for every rank, a thread for every stream."""

from collections.abc import Iterator
from itertools import count

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError
from stepsim.base.units import format_time_ps
from stepsim.measured.profile.events import UNKNOWN, EventKind, EventPhase, Profile
from stepsim.show.trace.document import Category, Fact, Label, Process, Slice, Thread
from stepsim.show.trace.processes import lanes_of
from stepsim.show.trace.window import WHOLE, Window

_CATEGORIES = {
    EventKind.COLLECTIVE: Category.COLLECTIVE,
    EventKind.SEND: Category.SEND,
    EventKind.RECV: Category.RECV,
    EventKind.HOST: Category.HOST,
}
_COMPUTE = {
    EventPhase.UNKNOWN: Category.FUSED,
    EventPhase.FORWARD: Category.FORWARD,
    EventPhase.BACKWARD: Category.BACKWARD,
    EventPhase.UPDATE: Category.PER_STEP,
}
_FACTS = ("size_bytes", "microbatch", "chunk")


class TracedProfile(Struct, frozen=True, kw_only=True):
    """A profile to be told: all its ranks, or `ranks`; what reaches into the `window`.

    Raises PlanError for ranks that were not recorded, and for a window behind the last operation.
    """

    profile: Profile
    ranks: tuple[int, ...] | None = None
    window: Window = WHOLE
    _labels: dict[tuple[int, ...], Label] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {each.rank for each in self.profile.ranks}
        for rank in self.ranks or ():
            if rank not in known:
                raise PlanError(
                    f"ranks: {self.profile.source} has no rank {rank}: expected one of "
                    f"{', '.join(map(str, sorted(known)[:16]))}"
                )
        last = int(self.profile.events.end_ps.max())
        if self.window.start_ps > last:
            raise PlanError(
                f"window is {self.window}: {self.profile.source} takes {format_time_ps(last)}"
            )

    @property
    def shown(self) -> Ints:
        """Places of the operations that are told."""
        events = self.profile.events
        held = self.window.holds(events.start_ps, events.end_ps)
        if self.ranks is not None:
            asked = np.isin([each.rank for each in self.profile.ranks], self.ranks)
            held &= asked[events.rank]
        return np.flatnonzero(held)

    def processes(self) -> Iterator[Process]:
        """A process for every rank, in order."""
        numbers, shown = count(1), self.shown
        of_rank = self.profile.events.rank[shown]
        places = shown[np.argsort(of_rank, kind="stable")]
        ends = np.cumsum(np.bincount(of_rank, minlength=len(self.profile.ranks)))
        for rank, mine in zip(self.profile.ranks, np.split(places, ends[:-1]), strict=True):
            if len(mine):
                stage = "" if rank.stage is None else f", stage {rank.stage}"
                yield Process(
                    number=next(numbers),
                    name=f"rank {rank.rank}{stage}",
                    threads=list(self._threads(mine, numbers)),
                    counters={},
                )

    def _threads(self, places: Ints, numbers: Iterator[int]) -> Iterator[Thread]:
        """The streams of a rank; operations that overlap on one have lanes."""
        streams = self.profile.events.stream[places]
        for stream in np.unique(streams).tolist():
            lanes = lanes_of(self._slices(places[streams == stream]))
            for lane, slices in enumerate(lanes):
                shown = f" {lane + 1}" if len(lanes) > 1 else ""
                name = "operations" if stream == UNKNOWN else f"stream {stream}"
                yield Thread(number=next(numbers), name=name + shown, slices=slices)

    def _slices(self, places: Ints) -> list[Slice]:
        events = self.profile.events
        order = places[np.lexsort((events.end_ps[places], events.start_ps[places]))]
        meets = np.isin(events.kind[order], (EventKind.SEND, EventKind.RECV))
        messages = np.where(meets, events.meeting[order] + 1, 0)
        columns = (order, events.start_ps[order], events.end_ps[order], messages)
        return [
            Slice(label=self._label(place), start_ps=start, end_ps=end, message=message)
            for place, start, end, message in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def _label(self, place: int) -> Label:
        """What an operation is, made once for those that are alike."""
        profile, events = self.profile, self.profile.events
        told = ("name", "step", "kind", "phase", "group", "peer", *_FACTS)
        key = tuple(int(getattr(events, name)[place]) for name in told)
        if key not in self._labels:
            name, step, kind, phase, group, peer, *numbers = key
            facts: dict[str, Fact] = {} if step < 0 else {"step": profile.steps[step]}
            if group >= 0:
                facts["group"] = profile.groups[group].name
            if peer >= 0:
                facts["peer"] = profile.ranks[peer].rank
            facts |= {n: value for n, value in zip(_FACTS, numbers, strict=True) if value >= 0}
            category = _CATEGORIES.get(EventKind(kind)) or _COMPUTE[EventPhase(phase)]
            label = Label(name=profile.names[name], category=category, facts=facts)
            self._labels[key] = label
        return self._labels[key]
