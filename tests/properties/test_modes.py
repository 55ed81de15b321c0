"""Every schedule in every mode it defines: it runs, runs what it says, and `eager` is a bound."""

from dataclasses import dataclass
from itertools import groupby

import pytest
from helpers import examples, line_of_npus, row, rows_of
from hypothesis import given, strategies as st
from invariants import check_timeline
from shapes import dualpipe, freely, shapes

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.core.timeline import Timeline, run_graph
from stepsim.core.write import write_graph
from stepsim.network.prices import Prices
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import ActionKind, FusedPair, OrderEntry, Schedule, build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.run.spans import TaskKind
from stepsim.workload.plan import Plan


@st.composite
def found_orders(draw: st.DrawFn) -> Schedule:
    """Orders that a search finds for durations, which need not be those of the run."""
    return build(
        "auto-zb",
        ranks=draw(st.integers(1, 6)),
        microbatches=draw(st.integers(1, 12)),
        forward_ps=draw(TIMES),
        input_grad_ps=draw(TIMES),
        weight_grad_ps=draw(TIMES),
    )


TIMES = st.integers(1, 1_000)
SHAPES = shapes(6) | {"auto-zb": found_orders()}
EAGER, BLOCKING, OVERLAP = P2PMode.EAGER, P2PMode.BLOCKING, P2PMode.OVERLAP
every_schedule = pytest.mark.parametrize("name", SHAPES)
some_examples = examples(15, least=4)
"""Of every schedule: they are 13."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Forward, input and weight gradient of each rank's chunks, and what a hop takes, in ps."""

    ranks: tuple[tuple[int, int, int], ...]
    hop: int

    def of(self, rank: int, entry: OrderEntry) -> int:
        """Duration of an entry; of a fused pair with a factor of 1."""
        f, i, w = self.ranks[rank]
        whole = {
            ActionKind.FORWARD: f,
            ActionKind.BACKWARD: i + w,
            ActionKind.INPUT_GRAD: i,
            ActionKind.WEIGHT_GRAD: w,
        }
        return sum(whole[action.kind] for action in entry.parts())


@st.composite
def costs(draw: st.DrawFn, schedule: Schedule) -> Costs:
    ranks = tuple((draw(TIMES), draw(TIMES), draw(TIMES)) for _ in schedule.orders)
    return Costs(ranks=ranks, hop=draw(st.integers(0, 2_000)))


@st.composite
def runtimes(draw: st.DrawFn) -> StepOptions:
    """What Megatron's runtime may be configured to do."""
    return StepOptions(warmup_flush=draw(st.booleans()), deallocate_outputs=draw(st.booleans()))


def modes(schedule: Schedule) -> list[P2PMode]:
    """The modes that are defined."""
    ranks, chunks = schedule.placement.ranks, schedule.placement.chunks
    blocks = schedule.megatron and not (ranks == 2 and chunks > 1)
    return [EAGER, OVERLAP, BLOCKING] if blocks else [EAGER, OVERLAP]


def run(
    schedule: Schedule, costs: Costs, mode: P2PMode = EAGER, options: StepOptions | None = None
) -> Timeline:
    """One NPU per pipeline rank; every chunk of a rank takes as long, messages are one byte."""
    placement = schedule.placement
    works = tuple(
        StageWork(chunks=(((row(f, i, w),),),) * placement.chunks, per_step=())
        for f, i, w in costs.ranks
    )
    plan = Plan(pp=placement.ranks, microbatches=schedule.microbatches)
    stages = Stages(works=works, pp_comm_bytes=1, warnings=())
    chosen = replace(options or StepOptions(), p2p=mode)
    graph = write_graph(stages, schedule, plan, chosen)
    network = line_of_npus(plan.npus, costs.hop)
    return run_graph(graph, Prices(plan=plan, topology=network, comms=graph.comms))


def entries_run(timeline: Timeline, rank: int) -> list[OrderEntry]:
    """Entries of a rank in the order in which they computed."""
    computed = [span for span in rows_of(timeline, [rank]) if span.kind is TaskKind.COMPUTE]
    computed.sort(key=lambda span: (span.start_ps, span.end_ps))
    return [entry for entry, _ in groupby(span.entry for span in computed) if entry]


@every_schedule
@some_examples
@given(data=st.data(), options=runtimes())
def test_every_mode_runs_every_entry_once_in_order(
    name: str, data: st.DataObject, options: StepOptions
) -> None:
    schedule = data.draw(SHAPES[name])
    times = data.draw(costs(schedule))
    for mode in modes(schedule):
        timeline = run(schedule, times, mode, options)
        check_timeline(timeline)
        for rank, order in enumerate(schedule.orders):
            assert entries_run(timeline, rank) == list(order), (mode, rank)
            computed = sum(
                span.end_ps - span.start_ps
                for span in rows_of(timeline, [rank])
                if span.kind is TaskKind.COMPUTE
            )
            assert computed == sum(times.of(rank, entry) for entry in order), (mode, rank)


@every_schedule
@some_examples
@given(data=st.data(), options=runtimes())
def test_eager_is_the_fastest_mode(name: str, data: st.DataObject, options: StepOptions) -> None:
    schedule = data.draw(SHAPES[name])
    times = data.draw(costs(schedule))
    bound = run(schedule, times).pipeline_time_ps
    for mode in modes(schedule):
        assert run(schedule, times, mode, options).pipeline_time_ps >= bound, mode


@some_examples
@given(schedule=SHAPES["interleaved"], data=st.data())
def test_waiting_for_sends_at_once_never_saves_time(
    schedule: Schedule, data: st.DataObject
) -> None:
    times = data.draw(costs(schedule))
    flush = data.draw(st.booleans())
    for mode in modes(schedule):
        kept, deallocated = (
            run(schedule, times, mode, StepOptions(warmup_flush=flush, deallocate_outputs=dealloc))
            for dealloc in (False, True)
        )
        assert kept.pipeline_time_ps <= deallocated.pipeline_time_ps, mode


@every_schedule
@some_examples
@given(data=st.data())
def test_overlap_costs_nothing_where_messages_take_no_time(name: str, data: st.DataObject) -> None:
    """Torch's receives are posted before the entry that needs them, and no entry waits for sends.

    Megatron's interleaved warm-up waits for the receive of an input that is needed later.
    """
    schedule = data.draw(SHAPES[name])
    times = replace(data.draw(costs(schedule)), hop=0)
    eager, overlap = (run(schedule, times, mode).pipeline_time_ps for mode in (EAGER, OVERLAP))
    if not schedule.megatron or schedule.placement.chunks == 1:
        assert overlap == eager


@every_schedule
@given(data=st.data())
def test_other_schedules_refuse_blocking(name: str, data: st.DataObject) -> None:
    schedule = data.draw(SHAPES[name])
    if BLOCKING not in modes(schedule):
        times = Costs(ranks=((1, 1, 1),) * schedule.placement.ranks, hop=1)
        with pytest.raises(ScheduleError, match=f"^schedule {name}.*expected eager or overlap"):
            run(schedule, times, BLOCKING)


def test_who_runs_what() -> None:
    """Megatron's runtimes have three schedules; torch's interleaved groups are not among them."""
    shape = {"ranks": 4, "microbatches": 8}
    built = {name: build(name, **shape) for name in SHAPES if name != "auto-zb"}
    megatron = {name for name, each in built.items() if each.megatron}
    assert megatron == {"gpipe", "1f1b", "interleaved"}
    assert not build("interleaved", **shape, grouping="torch").megatron


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_short_groups_of_torch_run_with_overlap(ranks: int) -> None:
    """Fewer microbatches than ranks: Megatron's program would ask for messages nobody sends."""
    shape = {"ranks": ranks, "microbatches": ranks - 1, "chunks": 2}
    schedule = build("interleaved", **shape, grouping="torch")
    check_timeline(run(schedule, Costs(ranks=((3, 1, 2),) * ranks, hop=1), OVERLAP))


FUSING = dualpipe(6) | freely("dualpipe-v", 6, fewest=lambda ranks: 2 * ranks)


@some_examples
@given(schedule=FUSING, data=st.data(), mode=st.sampled_from([EAGER, OVERLAP]))
def test_a_fused_pair_takes_as_long_as_its_halves(
    schedule: Schedule, data: st.DataObject, mode: P2PMode
) -> None:
    times = data.draw(costs(schedule))
    timeline = run(schedule, times, mode)
    for rank, order in enumerate(schedule.orders):
        start, end = (each.tolist() for each in timeline.entry_times(rank))
        lengths = [b - a for a, b in zip(start, end, strict=True)]
        assert lengths == [times.of(rank, entry) for entry in order]


def taken_apart(schedule: Schedule) -> Schedule:
    """The same order with the forward of every pair before its backward."""
    orders = [[action for entry in order for action in entry.parts()] for order in schedule.orders]
    return replace(schedule, orders=tuple(map(tuple, orders)))


@some_examples
@given(schedule=FUSING, data=st.data())
def test_taking_pairs_apart_never_costs_time(schedule: Schedule, data: st.DataObject) -> None:
    """A pair waits for the inputs of both halves and sends neither output before its end."""
    assert any(isinstance(entry, FusedPair) for order in schedule.orders for entry in order)
    times = data.draw(costs(schedule))
    fused, apart = (run(each, times).pipeline_time_ps for each in (schedule, taken_apart(schedule)))
    assert apart <= fused
    if schedule.placement.ranks == 1:
        assert apart == fused
