"""What several tests need: small workloads, stages and networks made by hand."""

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Stream, degrees_of
from stepsim.core.timeline import Timeline
from stepsim.core.write import TaskGraph, write_graph
from stepsim.network.prices import Prices
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import OrderEntry, Schedule
from stepsim.parallel.stages import Stages, StageWork
from stepsim.run.spans import UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.workload.model.device import Device
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Microbatch, Row, Work, Workload

Run = Callable[..., tuple[int, str, str]]
"""Runs a command of the command line: exit code, stdout, stderr."""


class Span(NamedTuple):
    """One row of a table of spans in words; `entry` is None outside the schedule of a pipeline."""

    rank: int
    stage: int
    stream: int
    kind: TaskKind
    label: str
    phase: str
    entry: OrderEntry | None
    size_bytes: int
    start_ps: int
    end_ps: int


def rows_of(timeline: Timeline, ranks: Iterable[int] | None = None) -> Iterator[Span]:
    """The spans of ranks one by one, by default of one rank of every class."""
    for spans in timeline.spans(ranks):
        yield from in_words(spans)


def in_words(spans: Spans) -> Iterator[Span]:
    """Every span in words, in the order of the table."""
    entries = spans.entries or ()
    columns = (
        *(spans.rank, spans.stage, spans.stream, spans.kind, spans.name, spans.phase, spans.entry),
        *(spans.size_bytes, spans.start_ps, spans.end_ps),
    )
    for row in zip(*(column.tolist() for column in columns), strict=True):
        rank, stage, stream, kind, name, number, entry, *numbers = row
        phase = TaskPhase(number).name.lower() if number != UNKNOWN else ""
        action = entries[entry] if entry != UNKNOWN else None
        label = spans.names[name]
        yield Span(rank, stage, stream, TaskKind(kind), label, phase, action, *numbers)


def answers_of(page: bytes) -> dict[str, Any]:
    """What a report holds, as its script unpacks it."""
    (packed,) = re.findall(rb'<script type="text/plain" id="answers">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def stream_words(span: Span) -> str:
    """What a page calls the stream of a simulated span."""
    return Stream(span.stream).name.lower().replace("_", " ")


def examples(most: int, least: int = 6) -> settings:
    """How many inputs hypothesis tries: `most` by its thorough profile, at least `least`."""
    allowed = (settings.default or settings()).max_examples
    return settings(max_examples=max(min(least, most), most * allowed // 100))


def few(values: Iterable[Any], *quick: object) -> list[Any]:
    """Values of a parametrized test, of which only the quick ones run by default.

    A tuple is a value of each of several parameters.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in quick else pytest.mark.slow,
        )
        for value in values
    ]


def row(forward: int, input_grad: int, weight_grad: int = 0, name: str = "attention") -> Row:
    """A row that only computes, times in ps."""
    return Row(
        name=name,
        forward=Work(compute_ps=forward),
        input_grad=Work(compute_ps=input_grad),
        weight_grad=Work(compute_ps=weight_grad),
    )


def uniform_workload(*, forward: int, backward: int, pp: int, microbatches: int) -> Workload:
    """One layer per stage, the same for every stage and microbatch."""
    block = Microbatch(embedding=(), layers=((row(forward, backward),),), head=())
    return Workload(
        source="uniform",
        degrees=degrees_of(pp=pp),
        npus=pp,
        microbatches=(block,) * microbatches,
    )


def line_of_npus(npus: int, hop_ps: int) -> NestedTopology:
    """Any NPU reaches any other in `hop_ps`, whatever the size."""
    link = LinkClass(name="wire", bandwidth=float("inf"), latency_ps=hop_ps)
    kind = DimensionKind.FULLY_CONNECTED
    return NestedTopology(
        name="wires", source="test", dimensions=(Dimension(kind=kind, size=npus, link=link),)
    )


def pipeline_graph(
    schedule: Schedule,
    forward: Sequence[int],
    backward: Sequence[int],
    mode: P2PMode,
    host_overhead_ps: int = 0,
) -> TaskGraph:
    """One rank per stage; stage s takes `forward[s]` and `backward[s]` ps, messages one byte."""
    plan = Plan(pp=schedule.placement.ranks, microbatches=schedule.microbatches)
    works = tuple(
        StageWork(chunks=(((row(f, b),),),), per_step=())
        for f, b in zip(forward, backward, strict=True)
    )
    stages = Stages(works=works, pp_comm_bytes=1, warnings=())
    options = StepOptions(p2p=mode, host_overhead_ps=host_overhead_ps)
    return write_graph(stages, schedule, plan, options)


def prices_of(graph: TaskGraph, hop_ps: int) -> Prices:
    """Prices of a graph whose messages take `hop_ps`."""
    return Prices(
        plan=graph.plan, topology=line_of_npus(graph.plan.npus, hop_ps), comms=graph.comms
    )


def two_levels(nodes: int = 2) -> NestedTopology:
    """Nodes of two NPUs: a link of 4 GB/s and 100 ps within, 1 GB/s and 1,000 ps between."""
    inner = LinkClass(name="inner", bandwidth=4e9, latency_ps=100)
    outer = LinkClass(name="outer", bandwidth=1e9, latency_ps=1_000)
    kind = DimensionKind.FULLY_CONNECTED
    dimensions = (
        Dimension(kind=kind, size=2, link=inner),
        Dimension(kind=kind, size=nodes, link=outer),
    )
    return NestedTopology(name="two levels", source="test", dimensions=dimensions)


def collective(
    size_bytes: int, group: Group, kind: CollectiveKind = CollectiveKind.ALL_REDUCE
) -> CommOp:
    """A collective on the axis of its group."""
    return CommOp(kind=kind, group=group, axis=ParallelAxis[group.name], size_bytes=size_bytes)


_MAKERS = {"cdna": "AMD", "tpu": "Google", "trainium": "AWS"}


def maker(device: Device) -> str:
    """Who makes a shipped device, by its generation; NVIDIA where no other is known."""
    found = (name for prefix, name in _MAKERS.items() if device.generation.startswith(prefix))
    return next(found, "NVIDIA")


def apart(some: NDArray[Any], others: NDArray[Any]) -> float:
    """How far samples of two laws are apart, by Kolmogorov and Smirnov: 1.63 once in a hundred."""
    one, other = np.sort(some, axis=None), np.sort(others, axis=None)
    every = np.concatenate([one, other])
    below = [np.searchsorted(each, every, "right") / len(each) for each in (one, other)]
    scale = (len(one) * len(other) / (len(one) + len(other))) ** 0.5
    return float(np.abs(below[0] - below[1]).max() * scale)
