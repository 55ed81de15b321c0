"""Numbers of a machine and its runtime from measured runs.

Host time per action is the time between traced operations. Messages are timed from the moment at
which both sides have posted, on aligned clocks. Nothing is fitted to a pipeline time.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import Values, replace
from stepsim.base.units import PS_PER_S
from stepsim.measured.calibration.calibration import (
    Calibration,
    ExpertImbalance,
    FittedSpeed,
    FittedTime,
    LayerTimes,
    LinkFit,
    fitted,
)
from stepsim.measured.calibration.gradients import gradient_costs
from stepsim.measured.clocks import NodePlacement, Transfers
from stepsim.measured.layers import stage_costs
from stepsim.measured.run import Degrees, OpKind
from stepsim.measured.step_ops import gradient_bytes
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable, MeasuredCurve

_FEW_SAMPLES = 2


def calibrate_traces(
    summaries: Sequence[RunSummary], table: CommTable | None = None
) -> Calibration:
    """Calibration from runs of one machine, with its micro-benchmarks, as far as there are any.

    Their messages say how times grow with size where the runs hold one size only. Raises
    CalibrationError where the table holds several machines.
    """
    table = fastest(table) if table else None
    curves = table.curves if table else ()
    if not summaries:
        return Calibration(sources=(), collective=curves)
    missing: list[tuple[str, str]] = []
    links = [_link(summaries, placement, table, missing) for placement in NodePlacement]
    launch, scaling = gradient_costs(summaries, table, missing)
    optimizer = _optimizer(summaries)
    if optimizer is None:
        missing.append(("optimizer", "no optimizer_step beside gradient sizes"))
    imbalance = tuple(_imbalances(summaries))
    if not imbalance:
        missing.append(("expert_imbalance", "no run with whole expert groups of known size"))
    return Calibration(
        sources=tuple(each.source for each in summaries),
        traces=tuple(rank.trace for each in summaries for rank in each.run.ranks),
        node_size=summaries[0].clocks.node_size,
        host_overhead=_host_overhead(summaries),
        point_to_point=tuple(link for link in links if link),
        collective=curves,
        gradient_launch=launch,
        gradient_scaling=scaling,
        optimizer=optimizer,
        expert_imbalance=imbalance,
        layer_times=tuple(_layer_times(summaries)),
        unidentified=tuple(missing),
    )


def fastest(table: CommTable) -> CommTable:
    """One curve per group: where several measured a size the fastest counts.

    Whatever else ran can only slow a measurement. Raises CalibrationError for several machines.
    """
    machines = sorted({curve.machine for curve in table.curves})
    if len(machines) > 1:
        raise CalibrationError(
            f"{table.source}: measured on {', '.join(machines[:4])}: expected one machine "
            "(--comm-source chooses)"
        )
    groups: dict[tuple[CollectiveKind, int, int], list[MeasuredCurve]] = {}
    for curve in table.curves:
        groups.setdefault((curve.kind, curve.ranks, curve.nodes), []).append(curve)
    return replace(table, curves=tuple(_merged(curves) for curves in groups.values()))


def _merged(curves: Sequence[MeasuredCurve]) -> MeasuredCurve:
    times: dict[int, int] = {}
    for curve in curves:
        for size, time in zip(curve.sizes, curve.times_ps, strict=True):
            times[size] = min(time, times.get(size, time))
    sizes = tuple(sorted(times))
    return replace(
        curves[0],
        source="; ".join(dict.fromkeys(curve.source for curve in curves)),
        sizes=sizes,
        times_ps=tuple(times[size] for size in sizes),
    )


def _host_overhead(summaries: Sequence[RunSummary]) -> FittedTime:
    """Host time per action, ps: mean over the actions of a rank, median over ranks."""
    per_rank = [rank.host_ps / rank.actions for each in summaries for rank in each.ranks]
    spread = fitted(per_rank)
    actions = sum(rank.actions for each in summaries for rank in each.ranks)
    mean = float(np.mean(per_rank))
    residual = spread.residual * spread.value / mean if mean else 0.0
    return FittedTime(value=round(mean), residual=residual, samples=actions)


def _link(
    summaries: Sequence[RunSummary],
    placement: NodePlacement,
    table: CommTable | None,
    missing: list[tuple[str, str]],
) -> LinkFit | None:
    """Messages between ranks of one node or of two.

    Steady exchanges count where there are any: they are what 1F1B waits for.
    """
    inside = placement is NodePlacement.INTRA_NODE
    sizes, times, both_ways = _messages(summaries, inside)
    name = f"point_to_point {placement}"
    if len(times) < _FEW_SAMPLES:
        missing.append((name, f"{len(times)} messages with both ends traced: too few"))
        return None
    distinct = np.unique(sizes)
    middle = np.array([np.median(times[sizes == size]) for size in distinct])
    curve = table.curve(CollectiveKind.SEND_RECV, 2, 1 if inside else 2) if table else None
    shape = _line_through(curve.size_bytes, curve.time_ps.astype(np.float64)) if curve else None
    latency, per_byte, lacking = _line_through(distinct, middle, shape)
    if lacking:
        missing.append((f"{name} latency", lacking))
    modelled = latency + sizes * per_byte
    return LinkFit(
        placement=placement,
        latency_ps=round(latency),
        bandwidth=PS_PER_S / per_byte,
        residual=float(np.median(np.abs(times / modelled - 1))),
        samples=len(times),
        sizes=tuple(distinct.tolist()),
        both_ways=both_ways,
    )


def _messages(summaries: Sequence[RunSummary], inside: bool) -> tuple[Ints, Ints, bool]:
    """Sizes and times of all messages in or between nodes, exchanges alone where there are any."""
    sent = Transfers.joined(*(each.transfers for each in summaries))
    sent = sent.taken((sent.intra_node == inside) & (sent.size_bytes > 0) & (sent.duration_ps > 0))
    both_ways = bool(sent.both_ways.any())
    sent = sent.taken(sent.both_ways) if both_ways else sent
    return sent.size_bytes, sent.duration_ps, both_ways


def _line_through(
    sizes: Ints, times: Floats, shape: tuple[float, float, str] | None = None
) -> tuple[float, float, str]:
    """(latency in ps, ps per byte, what could not be told apart) of times over sizes in bytes.

    Least squares of relative errors. One size gives one number: with a shape its latency and time
    per byte are scaled alike, without one all of it is taken as time per byte.
    """
    if len(sizes) > 1:
        columns = np.stack([np.ones(len(sizes)), sizes.astype(np.float64)], axis=1)
        latency, per_byte = np.linalg.lstsq(
            columns / times[:, None], np.ones(len(sizes)), rcond=None
        )[0]
        if latency >= 0 and per_byte > 0:
            return float(latency), float(per_byte), ""
    size, time = float(sizes[-1]), float(times[-1])
    if shape is None:
        return 0.0, time / size, "messages of one size only: all of their time grows with size"
    latency, per_byte, _ = shape
    factor = time / (latency + size * per_byte)
    return factor * latency, factor * per_byte, ""


def _optimizer(summaries: Sequence[RunSummary]) -> FittedSpeed | None:
    """Bytes/s of fp32 gradients that an optimizer step updates."""
    rates = []
    for summary in summaries:
        for op in summary.step_ops:
            size = gradient_bytes(summary.step_ops, op.stage)
            if op.kind is OpKind.OPTIMIZER and size:
                rates += [size / time * PS_PER_S for time in op.times_ps if time]
    return fitted(rates) if rates else None


def _imbalances(summaries: Sequence[RunSummary]) -> Iterable[ExpertImbalance]:
    for summary in summaries:
        found, degrees = summary.imbalance, summary.degrees
        if found and degrees.ep:
            yield ExpertImbalance(
                source=summary.source,
                ep=degrees.ep,
                experts=degrees.experts,
                mean=found.mean,
                largest=found.largest,
                samples=found.samples,
            )


def shape_of(degrees: Degrees) -> Values | None:
    """What runs must have in common for their layers to cost the same; None where not known.

    It is so much of `LayerTimes`.
    """
    if degrees.hidden is None or degrees.sequence is None or degrees.layers is None:
        return None
    shape = {name: getattr(degrees, name) for name in ("hidden", "sequence", "experts")}
    return shape | {"tp": degrees.tp or 1, "ep": degrees.ep or 1}


def _layer_times(summaries: Sequence[RunSummary]) -> Iterable[LayerTimes]:
    for summary in summaries:
        degrees = summary.degrees
        whole = len(summary.stages) == degrees.pp and (degrees.layers or 1) % degrees.pp == 0
        shape = shape_of(degrees)
        if shape is None or not whole:
            continue
        costs, _ = stage_costs(summary)
        yield LayerTimes(
            source=summary.source,
            **shape,
            forward_ps=costs[0].forward_ps,
            backward_ps=costs[0].backward_ps,
            first_forward_ps=costs[0].end_forward_ps,
            first_backward_ps=costs[0].end_backward_ps,
            last_forward_ps=costs[-1].end_forward_ps,
            last_backward_ps=costs[-1].end_backward_ps,
            get_batch_ps=costs[0].get_batch_ps,
            loss_ps=costs[-1].loss_ps,
        )
