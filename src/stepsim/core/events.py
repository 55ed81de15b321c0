"""The event engine: runs the nodes of a step in SimPy, and proves that all of them ended.

The only module that imports simpy. A node starts when everything that it waits for has ended. Ends
are SimPy events; equal times run in the order in which they were scheduled, so every run is the
same.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import simpy
from msgspec import Struct, field
from simpy.events import EventPriority

from stepsim.base.arrays import Ints, lists_of
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Numbers
from stepsim.base.units import MAX_INT64
from stepsim.core.ends import TOO_LONG
from stepsim.network.flights import Fabric, Transfer, TransferPhase
from stepsim.run.spans import NodeWaits

OnProgress = Callable[[int, int], None]
"""Called now and then with (nodes ended, all nodes)."""

_REPORT_EVERY = 1 << 16
_AFTER_ALL_OTHERS = EventPriority(2)


def run(
    waits: NodeWaits,
    duration_ps: Ints,
    transfers: Mapping[int, Transfer],
    fabric: Fabric | None = None,
    progress: OnProgress | None = None,
) -> tuple[Ints, Ints]:
    """Start and end of every node in ps; each takes its duration, or is one of the `transfers`.

    `fabric` holds the links that transfers share. Raises SimulationError when the run exceeds
    2**63 - 1 ps.
    """
    after = waits.after
    pairs = after.values.astype(np.int64) << 32 | after.owners
    run = _Run(
        duration_ps=duration_ps.tolist(),
        missing=after.counts.tolist(),
        followers=lists_of(pairs, len(waits)).tolist(),
        transfers=transfers,
        fabric=fabric or Fabric(capacity=np.zeros(0)),
        progress=progress,
        start=array("q", bytes(8 * len(waits))),
        end=array("q", bytes(8 * len(waits))),
    )
    for node in [node for node, missing in enumerate(run.missing) if not missing]:
        run.begin(node)
    run.env.run()
    if run.ended < len(waits):
        raise SimulationError(f"{len(waits) - run.ended} nodes never started")
    # numpy's usual integers: `ufunc.at` takes 20 times as long for C's `long long`
    return np.frombuffer(run.start, np.int64), np.frombuffer(run.end, np.int64)


class _Settling(simpy.Event):
    """Happens now, after all other events of this moment."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, _AFTER_ALL_OTHERS)


class _Run(Struct, kw_only=True):
    """A run under way: `phases` are those to come of each transfer that has begun.

    Bytes that are under way arrive at `arrivals`, as last forecast.
    """

    duration_ps: list[int]
    missing: list[int]
    followers: list[Numbers]
    transfers: Mapping[int, Transfer]
    fabric: Fabric
    progress: OnProgress | None
    start: "array[int]"
    end: "array[int]"
    env: simpy.Environment = field(default_factory=lambda: simpy.Environment(initial_time=0))
    phases: dict[int, Iterator[TransferPhase]] = {}
    arrivals: dict[int, int] = {}
    settling: bool = False
    ended: int = 0

    def begin(self, node: int) -> None:
        """Start a node; its end is an event."""
        self.start[node] = int(self.env.now)
        transfer = self.transfers.get(node)
        if transfer is None:
            self.after(self.duration_ps[node], self.over, node)
        else:
            self.phases[node] = iter(transfer.phases)
            self.next_phase(node)

    def after(self, delay_ps: int, callback: Callable[[simpy.Event], None], value: Any) -> None:
        """Call back with an event of this value when the time has passed."""
        if int(self.env.now) + delay_ps > MAX_INT64:
            raise SimulationError(TOO_LONG)
        event = self.env.timeout(delay_ps, value)
        event.callbacks.append(callback)

    def next_phase(self, node: int) -> None:
        """Begin the latency of a transfer's next phase, or end the transfer."""
        phase = next(self.phases[node], None)
        if phase:
            self.after(phase.latency_ps, self.send, (node, phase))
        else:
            self.release(node)

    def send(self, event: simpy.Event) -> None:
        """The latency of a phase is over: its bytes enter the links."""
        node, phase = cast(tuple[int, TransferPhase], event.value)
        end_ps = self.fabric.enter(node, phase, int(self.env.now))
        if end_ps is None:
            self.settle_soon()
        else:
            self.forecast(node, end_ps)

    def settle_soon(self) -> None:
        """Share the links anew when all events of this moment have happened."""
        if self.fabric.touched and not self.settling:
            self.settling = True
            _Settling(self.env).callbacks.append(self.settle)

    def settle(self, _: simpy.Event) -> None:
        """Forecast the ends of all flights whose speed has changed."""
        self.settling = False
        for node, end_ps in self.fabric.settle(int(self.env.now)):
            self.forecast(node, end_ps)

    def forecast(self, node: int, end_ps: int) -> None:
        """The bytes of a flight arrive then, unless a later forecast says otherwise."""
        self.arrivals[node] = end_ps
        self.after(end_ps - int(self.env.now), self.arrive, node)

    def arrive(self, event: simpy.Event) -> None:
        """The bytes of a phase have arrived, unless the forecast is out of date."""
        node = cast(int, event.value)
        if self.arrivals.get(node) == self.env.now:
            del self.arrivals[node]
            self.fabric.leave(node)
            self.settle_soon()
            self.next_phase(node)

    def over(self, event: simpy.Event) -> None:
        """A node of fixed duration is over."""
        self.release(cast(int, event.value))

    def release(self, node: int) -> None:
        """Start what waited for a node that has ended."""
        self.end[node] = int(self.env.now)
        for follower in self.followers[node]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self.begin(follower)
        self.ended += 1
        if self.progress and self.ended % _REPORT_EVERY == 0:
            self.progress(self.ended, len(self.missing))
