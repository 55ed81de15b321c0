"""Every schedule, in any shape it accepts: complete, free of deadlock, and as idle as it should be.

Times come from an evaluator written for these tests: ranks are serial, F(s,j) follows F(s-1,j),
B and I(s,j) follow B or I(s+1,j) and F(s,j), W follows I, and a hop between ranks takes `hop`.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st
from shapes import megatron, shapes

from stepsim.base.errors import ScheduleError
from stepsim.parallel.schedules import (
    BUILDERS,
    Action,
    ActionKind,
    FusedPair,
    OrderEntry,
    Schedule,
    build,
    parse_name,
)
from stepsim.parallel.schedules.base import peak_live

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD  # noqa: E741
RANKS = st.integers(1, 9)
TIMES = st.integers(1, 20)
SHAPE = st.tuples(RANKS, st.integers(1, 30), st.integers(1, 4))
"""Ranks, microbatches and chunks of each rank."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Durations of one chunk's actions; a fused pair takes `pair`, by default f + b."""

    f: int
    i: int
    w: int
    hop: int = 0
    pair: int | None = None

    @property
    def b(self) -> int:
        return self.i + self.w

    @property
    def fused(self) -> int:
        return self.f + self.b if self.pair is None else self.pair

    def of(self, entry: OrderEntry) -> int:
        if isinstance(entry, FusedPair):
            return self.fused
        return {F: self.f, B: self.b, I: self.i, W: self.w}[entry.kind]


Result = tuple[str, int, int]
"""Output, gradient of the input, or what W needs ("F", "B", "I"), of a stage and microbatch."""


def needs(action: Action, stages: int) -> list[Result]:
    stage, microbatch = action.stage, action.microbatch
    match action.kind:
        case ActionKind.FORWARD:
            return [("F", stage - 1, microbatch)] if stage else []
        case ActionKind.WEIGHT_GRAD:
            return [("I", stage, microbatch)]
    own: Result = ("F", stage, microbatch)
    return [own, ("B", stage + 1, microbatch)] if stage < stages - 1 else [own]


def gives(action: Action) -> list[Result]:
    results = {F: ["F"], B: ["B"], I: ["B", "I"], W: []}[action.kind]
    return [(result, action.stage, action.microbatch) for result in results]


def idle_times(schedule: Schedule, costs: Costs) -> list[int]:
    """Makespan minus busy time of every rank; fails where ranks wait for each other."""
    orders = schedule.orders
    stages = 1 + max(a.stage for rank in range(len(orders)) for a in schedule.actions(rank))
    done: dict[Result, tuple[int, int]] = {}
    clock, position = [0] * len(orders), [0] * len(orders)

    def runs(rank: int) -> bool:
        """Run the next entry of a rank if its inputs are there."""
        if position[rank] == len(orders[rank]):
            return False
        entry = orders[rank][position[rank]]
        inputs = [result for action in entry.parts() for result in needs(action, stages)]
        if any(result not in done for result in inputs):
            return False
        for end, owner in (done[result] for result in inputs):
            clock[rank] = max(clock[rank], end + costs.hop * (owner != rank))
        clock[rank] += costs.of(entry)
        for action in entry.parts():
            done.update((result, (clock[rank], rank)) for result in gives(action))
        position[rank] += 1
        return True

    while any(runs(rank) for rank in range(len(orders))):
        pass
    assert position == [len(order) for order in orders], "deadlock"
    return [max(clock) - sum(costs.of(entry) for entry in order) for order in orders]


SHAPES = shapes(9)
every_schedule = pytest.mark.parametrize("name", SHAPES)


def test_no_schedule_is_left_out() -> None:
    assert SHAPES.keys() == BUILDERS.keys() - {"auto-zb"}  # its orders follow from durations


@every_schedule
@given(data=st.data())
def test_every_action_runs_once_on_the_rank_of_its_stage(name: str, data: st.DataObject) -> None:
    schedule = data.draw(SHAPES[name])
    placement = schedule.placement
    seen: Counter[tuple[int, int, ActionKind]] = Counter()
    for rank in range(placement.ranks):
        for action in schedule.actions(rank):
            assert placement.rank(action.stage, action.microbatch) == rank
            assert placement.stage(rank, action.chunk) == action.stage
            seen[action.stage, action.microbatch, action.kind] += 1
    for stage in range(placement.stages):
        for microbatch in range(schedule.microbatches):
            kinds = [kind for kind in (F, B, I, W) if seen.pop((stage, microbatch, kind), 0) == 1]
            assert kinds in ([F, B], [F, I, W])
    assert not seen


@every_schedule
@given(data=st.data())
def test_each_rank_runs_forward_then_backward_then_weights(name: str, data: st.DataObject) -> None:
    schedule = data.draw(SHAPES[name])
    for rank in range(schedule.placement.ranks):
        done: set[tuple[int, int, ActionKind]] = set()
        for action in schedule.actions(rank):
            where = action.stage, action.microbatch
            assert action.kind not in (B, I) or (*where, F) in done
            assert action.kind is not W or (*where, I) in done
            done.add((*where, action.kind))


@every_schedule
@given(data=st.data(), f=TIMES, i=TIMES, w=TIMES, hop=st.integers(0, 30))
def test_ranks_never_wait_for_each_other(
    name: str, data: st.DataObject, f: int, i: int, w: int, hop: int
) -> None:
    assert min(idle_times(data.draw(SHAPES[name]), Costs(f=f, i=i, w=w, hop=hop))) >= 0


@every_schedule
@given(data=st.data())
def test_warm_up_is_what_comes_before_the_first_backwards_partner(
    name: str, data: st.DataObject
) -> None:
    schedule = data.draw(SHAPES[name])
    for lead, order in zip(schedule.warm_up, schedule.orders, strict=bool(schedule.warm_up)):
        kinds = [action.kind for entry in order for action in entry.parts()]
        forwards = kinds.index(next(kind for kind in kinds if kind is not F))
        assert forwards == min(lead + 1, kinds.count(F))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "looped-bfs", "combined-1f1b"])
@given(data=st.data(), f=TIMES, i=TIMES, w=TIMES)
def test_idle_with_whole_backwards(name: str, data: st.DataObject, f: int, i: int, w: int) -> None:
    """Of combined 1F1B where a pair takes as long as its halves."""
    schedule = data.draw(SHAPES[name])
    costs, ranks, chunks = Costs(f=f, i=i, w=w), schedule.placement.ranks, schedule.placement.chunks
    waits = (chunks - 1) * max(0, ranks - schedule.microbatches)
    assert set(idle_times(schedule, costs)) == {(ranks - 1 + waits) * (f + costs.b)}


@given(schedule=SHAPES["interleaved-zb"] | SHAPES["zb-h1"], f=TIMES, i=TIMES, w=TIMES)
def test_idle_with_split_backwards(schedule: Schedule, f: int, i: int, w: int) -> None:
    idle = set(idle_times(schedule, Costs(f=f, i=i, w=w)))
    ranks = schedule.placement.ranks
    if schedule.microbatches >= ranks:
        assert idle == {(ranks - 1) * max(f, i, f + i - w)}


@given(schedule=SHAPES["zb-v"], f=TIMES, i=TIMES, w=TIMES)
def test_idle_of_zb_v(schedule: Schedule, f: int, i: int, w: int) -> None:
    ranks = schedule.placement.ranks
    assert min(idle_times(schedule, Costs(f=f, i=i, w=w))) >= (ranks - 1) * f
    if schedule.microbatches >= 2 * ranks - 1:
        assert set(idle_times(schedule, Costs(f=f, i=f, w=f))) == {(ranks - 1) * f}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8, 9, 12, 16])
@pytest.mark.parametrize("more", [0, 1, 11])
@pytest.mark.parametrize(
    ("name", "live", "idle", "share"),
    [
        ("v-min", lambda p: (p + 4) // 3, lambda p: 4 * p - (5 if p % 3 else 3), 2 / 3),
        ("v-half", lambda p: (p + 2) // 2, lambda p: 3 * p - 3 - p % 2, 1 / 2),
    ],
)
def test_controllable_memory(
    name: str,
    live: Callable[[int], int],
    idle: Callable[[int], int],
    share: float,
    ranks: int,
    more: int,
) -> None:
    """Memory and bubble of the paper, in microbatches and for F = I = W and free messages."""
    schedule = build(name, ranks=ranks, microbatches=ranks + more)
    assert max(peak.freed_at_w for peak in peak_live(schedule)) == 2 * live(ranks)
    found = set(idle_times(schedule, Costs(f=1, i=1, w=1)))
    assert found == {idle(ranks) if ranks > 1 else 0}
    assert max(found) / (6 * schedule.microbatches) <= share * ranks / schedule.microbatches


@given(ranks=RANKS, microbatches=st.integers(1, 30))
def test_controllable_memory_of_few_microbatches(ranks: int, microbatches: int) -> None:
    for name, live in (("v-min", (ranks + 4) // 3), ("v-half", (ranks + 2) // 2)):
        schedule = build(name, ranks=ranks, microbatches=microbatches)
        assert max(peak.freed_at_w for peak in peak_live(schedule)) <= 2 * live


@given(schedule=SHAPES["dualpipe"] | SHAPES["dualpipe-v"], data=st.data(), f=TIMES)
def test_idle_with_fused_pairs(schedule: Schedule, data: st.DataObject, f: int) -> None:
    """Exact when a pair takes as long as its longer half or longer."""
    w = data.draw(st.integers(1, f))
    costs = Costs(f=f, i=f, w=w, pair=data.draw(st.integers(f + w, 2 * f + w)))
    ranks, both_ends = schedule.placement.ranks, schedule.name == "dualpipe"
    depth = ranks // 2 if both_ends else ranks
    for rank, idle in enumerate(idle_times(schedule, costs)):
        from_end = min(rank, ranks - 1 - rank) if both_ends else rank
        less = max(0, depth - 2 - from_end) * (f + costs.b - costs.fused)
        assert idle == (depth - 1) * (costs.fused + costs.b - 3 * w) - less


def group_size(schedule: Schedule) -> int:
    """Forwards of chunk 0 before chunk 1 begins."""
    chunks = [action.chunk for action in schedule.actions(0) if action.kind is F]
    return chunks.index(1) if 1 in chunks else schedule.microbatches


def idle_with_hops(schedule: Schedule, costs: Costs) -> int:
    """The closed form of GPipe, looped breadth-first and interleaved 1F1B with whole groups."""
    ranks, chunks = schedule.placement.ranks, schedule.placement.chunks
    waits = [
        max(0, ranks * (each + costs.hop) - group_size(schedule) * each)
        for each in (costs.f, costs.b)
    ]
    return (ranks - 1) * (costs.f + costs.b + 2 * costs.hop) + (chunks - 1) * sum(waits)


@given(schedule=SHAPES["gpipe"] | SHAPES["looped-bfs"], f=TIMES, b=TIMES, hop=st.integers(0, 50))
def test_idle_with_hops_breadth_first(schedule: Schedule, f: int, b: int, hop: int) -> None:
    costs = Costs(f=f, i=b, w=0, hop=hop if schedule.placement.ranks > 1 else 0)
    assert set(idle_times(schedule, costs)) == {idle_with_hops(schedule, costs)}


@given(schedule=megatron(9, whole_groups=True), f=TIMES, b=TIMES, data=st.data())
def test_idle_with_hops_interleaved(
    schedule: Schedule, f: int, b: int, data: st.DataObject
) -> None:
    """Exact when a hop takes no longer than a chunk."""
    longest = min(f, b) if schedule.placement.ranks > 1 else 0
    costs = Costs(f=f, i=b, w=0, hop=data.draw(st.integers(0, longest)))
    assert set(idle_times(schedule, costs)) == {idle_with_hops(schedule, costs)}


@given(ranks=st.integers(2, 9), groups=st.integers(1, 4), f=TIMES, b=TIMES, data=st.data())
def test_extra_time_of_1f1b_with_hops(
    ranks: int, groups: int, f: int, b: int, data: st.DataObject
) -> None:
    schedule = build("1f1b", ranks=ranks, microbatches=groups * ranks)
    hop = data.draw(st.integers(0, min(f, b)))
    idle = set(idle_times(schedule, Costs(f=f, i=b, w=0, hop=hop)))
    assert idle == {(ranks - 1) * (f + b) + 2 * hop * ((ranks - 1) * groups + ranks - 2)}


def expected_peak(schedule: Schedule, rank: int) -> int | None:
    """Live chunks, freed at W; None where the reference gives an upper bound only."""
    m, ranks, chunks = schedule.microbatches, schedule.placement.ranks, schedule.placement.chunks
    first_chunks, after = (chunks - 1) * group_size(schedule), ranks - 1 - rank
    return {
        "gpipe": m,
        "1f1b": min(after + 1, m),
        "interleaved": min(first_chunks + 2 * after + 1, m * chunks),
        "looped-bfs": m * chunks,
        "interleaved-zb": min(first_chunks + ranks, m * chunks),
        "zb-h1": min(ranks, m),
        "combined-1f1b": min(first_chunks + 2 * after + 2, m * chunks),
        "zb-v": 2 * ranks if m >= 2 * ranks - 1 else None,
        "v-half": None,
        "v-min": None,
        "dualpipe": ranks + 1,
        "dualpipe-v": 2 * ranks + 1,
    }[schedule.name]


@every_schedule
@given(data=st.data())
def test_peak_of_live_activations(name: str, data: st.DataObject) -> None:
    schedule = data.draw(SHAPES[name])
    for rank, peak in enumerate(peak_live(schedule)):
        expected = expected_peak(schedule, rank)
        assert peak.freed_at_b <= peak.freed_at_w
        if expected is None:
            assert peak.freed_at_w <= 2 * schedule.placement.ranks
        else:
            assert peak.freed_at_w == expected


def accepts(name: str, shape: tuple[int, int, int], **more: Any) -> bool:
    """Whether `build` does; a refusal must say what is wrong and what would be right."""
    ranks, microbatches, chunks = shape
    try:
        build(name, ranks=ranks, microbatches=microbatches, chunks=chunks, **more)
    except ScheduleError as error:
        refusal = str(error)
    else:
        return True
    assert re.match(rf"schedule {name}: \w+ is \d+: expected .*\d", refusal)
    return False


@given(group_size=st.integers(0, 20), shape=SHAPE)
def test_megatron_refuses_what_its_source_does(
    shape: tuple[int, int, int], group_size: int
) -> None:
    ranks, microbatches, chunks = shape
    fits = ranks <= group_size <= microbatches and chunks >= 2
    left = microbatches % group_size if fits else 0
    accepted = accepts("interleaved", shape, group_size=group_size)
    assert accepted == (fits and (left == 0 or left >= ranks))


@given(shape=SHAPE)
def test_torch_refuses_unequal_rounds(shape: tuple[int, int, int]) -> None:
    ranks, microbatches, _ = shape
    equal = microbatches % max(1, microbatches // ranks) == 0
    assert accepts("interleaved", shape, grouping="torch") == equal
    assert accepts("interleaved-zb", shape) == equal


@given(shape=SHAPE)
def test_v_shapes_hold_two_chunks(shape: tuple[int, int, int]) -> None:
    ranks, microbatches, chunks = shape
    long = microbatches >= 2 * ranks
    even = ranks % 2 == 0 and microbatches % 2 == 0
    for name in ("zb-v", "v-half", "v-min"):
        assert accepts(name, shape) == (chunks == 2)
    assert accepts("dualpipe-v", shape) == (chunks == 2 and long)
    assert accepts("dualpipe", shape) == (chunks == 2 and long and even)


@pytest.mark.parametrize("name", ["gpipe", "zb-h1"])
@given(shape=SHAPE)
def test_some_hold_one_chunk(name: str, shape: tuple[int, int, int]) -> None:
    assert accepts(name, shape) == (shape[-1] == 1)


@every_schedule
@pytest.mark.parametrize("field", ["ranks", "microbatches", "chunks"])
def test_shapes_are_positive(name: str, field: str) -> None:
    shape = {"ranks": 4, "microbatches": 8, field: 0}
    with pytest.raises(
        ScheduleError,
        match=f"^schedule {name}: ({field} is 0: expected (at least )?1|chunks is 0: expected 2)",
    ):
        build(name, **shape)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("1f1b", {"group_size": 4}, "schedule 1f1b: option group_size is 4: expected no options"),
        (
            "interleaved",
            {"group": 4},
            "schedule interleaved: option group is 4: expected the options group_size, grouping",
        ),
        ("interleaved", {"grouping": "x"}, "grouping is 'x': expected megatron or torch"),
        ("interleaved", {"grouping": "torch", "group_size": 4}, "group_size is 4: expected none"),
        ("interleaved", {"group_size": 5}, "microbatches is 8: expected a multiple of group_size"),
        ("interleaved", {"group_size": 9}, r"group_size is 9: expected from 4 \(ranks\) to 8"),
        ("interleaved:2", {"chunks": 4}, "schedule interleaved:2: chunks is 4: expected 2"),
        ("zbv", {}, "schedule is 'zbv': expected one of 1f1b, gpipe, "),
        ("zb-v:", {}, "schedule is 'zb-v:': expected a number of chunks after the colon"),
    ],
)
def test_names_and_options_that_mean_nothing_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(name, ranks=4, microbatches=8, **options)


def test_a_name_may_say_how_many_chunks() -> None:
    assert parse_name("interleaved") == ("interleaved", None)
    assert parse_name("interleaved:4") == ("interleaved", 4)
    named = build("interleaved:4", ranks=2, microbatches=4)
    assert named == build("interleaved", ranks=2, microbatches=4, chunks=4)
    assert named == build("interleaved:4", ranks=2, microbatches=4, chunks=4)


@every_schedule
def test_without_a_number_there_are_one_or_two_chunks(name: str) -> None:
    known = {"gpipe": 1, "1f1b": 1, "zb-h1": 1, "interleaved": 2, "zb-v": 2}
    chunks = build(name, ranks=2, microbatches=4).placement.chunks
    assert chunks in ((known[name],) if name in known else (1, 2))
