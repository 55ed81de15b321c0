"""Profiles: columns, what waits for what, and what slow workers cost."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from profiles import HOP, Rows, made_rows, write_rows

from stepsim.base.arrays import medians
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.stragglers import Stragglers, find_stragglers
from stepsim.files.traces.ndtimeline import read_ndtimeline
from stepsim.measured.profile import waits as module
from stepsim.measured.profile.events import Events, Profile, RankPlace, counted, same
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits, chained
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

pytest.importorskip("pyarrow")


_RECV = "forward-recv"


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def profile_of(**columns: Any) -> Profile:
    """A profile of one step and nameless operations; times in ps."""
    count = len(columns["start_ps"])
    zeros = np.zeros(count, dtype=np.int64)
    plain = {"rank": zeros, "step": zeros, "name": zeros, "kind": zeros, **columns}
    ranks = tuple(RankPlace(rank=rank) for rank in range(int(plain["rank"].max()) + 1))
    events = Events.of(count, **plain)
    return Profile(
        source="made",
        format="test",
        ranks=ranks,
        steps=(7,),
        names=("work",),
        groups=(),
        events=events,
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_equal_columns_bear_equal_numbers(pairs: list[tuple[int, int]]) -> None:
    columns = [ints(*column) for column in zip(*pairs, strict=True)] if pairs else [ints()] * 2
    numbers, earlier = same(*columns).tolist(), counted(*columns).tolist()
    for i, one in enumerate(pairs):
        assert earlier[i] == pairs[:i].count(one)
        assert all((numbers[i] == numbers[j]) == (one == other) for j, other in enumerate(pairs))
    assert sorted(set(numbers)) == list(range(len(set(pairs))))


def test_what_is_not_told_is_unknown() -> None:
    events = profile_of(start_ps=ints(0, 5), end_ps=ints(5, 9)).events
    assert set(events.peer.tolist()) == set(events.chunk.tolist()) == {UNKNOWN}
    assert events.taken(ints(1)).duration_ps.tolist() == [4]
    with pytest.raises(TraceError, match="different lengths"):
        Events.of(2, rank=ints(0))


def test_an_operation_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(TraceError, match="work of rank 0, step 7 ends before it starts"):
        profile_of(start_ps=ints(0, 5), end_ps=ints(5, 4))


def test_a_meeting_starts_with_its_last_member() -> None:
    """Rank 0 computes 10, rank 1 30; both then meet for 5: recorded 20 later than rank 0 came."""
    profile = profile_of(
        rank=ints(0, 1, 0, 1),
        start_ps=ints(0, 0, 12, 30),
        end_ps=ints(10, 30, 35, 36),
        meeting=ints(-1, -1, 0, 0),
        kind=ints(0, 0, 1, 1),
    )
    pairs = chained(profile.events.rank, order=profile.events.start_ps)
    waits = Waits(profile=profile, before=pairs[0], after=pairs[1])
    assert waits.own_ps.tolist() == [10, 30, 5, 6]
    assert waits.delay_ps.tolist() == [0, 0, 2, 0]
    assert waits.ends_ps(waits.own_ps, waits.delay_ps).tolist() == [10, 30, 35, 36]
    shorter, prompt = ints(10, 3, 5, 6), ints(0, 0, 0, 0)
    assert waits.ends_ps(shorter).tolist() == [10, 3, 15, 16]
    cases = [(waits.own_ps, waits.delay_ps), (shorter, prompt), (waits.own_ps, ints(0, 2, 9, 0))]
    assert waits.of_times(cases).tolist() == [[36, 16, 38]]


@st.composite
def waiting(draw: st.DrawFn) -> tuple[Waits, list[tuple[Any, Any]]]:
    """Operations of two steps, some of which meet the next, and cases of times: some are late."""
    count = draw(st.integers(1, 14))

    def numbers(most: int) -> Any:
        return ints(*draw(st.lists(st.integers(0, most), min_size=count, max_size=count)))

    even = np.arange(count) // 2 * 2
    meeting = np.where((numbers(1)[even] > 0) & (even + 1 < count), even, -1)
    place = st.integers(0, count - 1)
    pairs = [
        (before, after)
        for before, after in draw(st.lists(st.tuples(place, place), max_size=20, unique=True))
        if before < after and (meeting[before] == -1 or meeting[before] != meeting[after])
    ]
    times = dict.fromkeys(("start_ps", "end_ps"), np.zeros(count, dtype=np.int64))
    profile = replace(profile_of(**times, step=numbers(1), meeting=meeting), steps=(7, 8))
    before, after = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    late = numbers(1) > 0
    cases = [(numbers(9), np.where(late, numbers(9), 0)) for _ in range(draw(st.integers(1, 4)))]
    return Waits(profile=profile, before=before, after=after), cases


@given(waiting())
@examples(200)
def test_a_step_ends_with_its_last_operation(made: tuple[Waits, list[tuple[Any, Any]]]) -> None:
    """However operations are joined to lists, and however many cases are looked at together."""
    waits, cases = made
    step = waits.profile.events.step
    expected = [
        [int(waits.ends_ps(*case)[step == number].max(initial=0)) for case in cases]
        for number in (0, 1)
    ]
    assert waits.of_times(cases).tolist() == expected
    assert waits.steps_ps(*cases[0]).tolist() == [row[0] for row in expected]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_MOST_TIMES", 1)
        assert waits.of_times(iter(cases)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 99)), min_size=1, max_size=20))
def test_medians_are_those_of_the_values_of_a_place(pairs: list[tuple[int, int]]) -> None:
    places, values = (ints(*column) for column in zip(*pairs, strict=True))
    found = medians(places, values, 3)
    for number in {place for place, _ in pairs}:
        assert found[number] == median(value for place, value in pairs if place == number)


def test_operations_that_wait_for_each_other_are_refused() -> None:
    profile = profile_of(start_ps=ints(0, 5), end_ps=ints(5, 9))
    circle = Waits(profile=profile, before=ints(0, 1), after=ints(1, 0))
    with pytest.raises(TraceError, match="work of rank 0, step 7 waits for itself"):
        circle.ends_ps(circle.own_ps)


def stragglers_of(rows: Rows, folder: Path) -> Stragglers:
    profile = read_ndtimeline(write_rows(rows, folder / "job.parquet"))
    return find_stragglers(profile)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (4, 1), (2, 2), (4, 3)])
def test_messages_meet_between_neighbours(stages: int, chunks: int, tmp_path: Path) -> None:
    """A message has the microbatch of its compute; its ends lie on chunks side by side."""
    rows = made_rows(stages=stages, replicas=2, microbatches=8, chunks=chunks, steps=2)
    profile = read_ndtimeline(write_rows(rows, tmp_path / "job.parquet"))
    assert not profile.warnings
    events = profile.events
    for phase, ahead in ((TaskPhase.FORWARD, 1), (TaskPhase.BACKWARD, -1)):
        sent = np.flatnonzero(events.of_kind(TaskKind.SEND) & (events.phase == phase))
        received = np.flatnonzero(events.of_kind(TaskKind.RECV) & (events.phase == phase))
        assert len(sent) == len(received) == 2 * 2 * 8 * (stages * chunks - 1)
        sent = sent[np.argsort(events.meeting[sent])]
        received = received[np.argsort(events.meeting[received])]
        assert np.array_equal(events.meeting[sent], events.meeting[received])
        assert np.array_equal(events.microbatch[sent], events.microbatch[received])
        assert np.array_equal(events.chunk[sent] + ahead, events.chunk[received])
        assert np.array_equal(events.peer[sent], events.rank[received])
    waits = pipeline_waits(profile)
    assert not waits.delay_ps[events.of_kind(TaskKind.COMPUTE)].any()
    assert np.array_equal(waits.steps_ps(waits.own_ps, waits.delay_ps), profile.step_times_ps())


def test_a_slow_stage_is_found(tmp_path: Path) -> None:
    """Stage 1 of 2 takes twice as long: it sets the pace, and ideal it is a mean of both.

    1F1B of two stages with four microbatches: the slow stage runs 4 * 6 s behind a forward of 1 s
    and before a backward of 2 s; all messages that it waits for take a hop. Ideally every stage
    takes 1.5 s and 3 s.
    """
    found = stragglers_of(made_rows(stages=2, replicas=2, microbatches=4, slow=1), tmp_path)
    once = 0.5 + 0.5 + 0.25 + 1
    slow, ideal = (np.array(each) / PS_PER_S for each in (found.prompt_ps, found.ideal_ps))
    assert slow[0] == pytest.approx(once + 1 + 24 + 2 + 2 * HOP)
    assert ideal[0] == pytest.approx(once + 1.5 + 4 * 4.5 + 3 + 2 * HOP)
    assert found.slowdown == pytest.approx(slow[0] / ideal[0])
    assert found.by_stage[1] > found.slowdown > 1 > found.by_stage[0]
    assert found.slowest == (100,)
    assert [*found.by_rank[2:]] == [found.by_rank[2]] * 2
    assert found.last_stage_share > 1, "the ideal keeps a part of its time on stage 0"


@pytest.fixture(scope="module")
def st_job(shared: Path) -> tuple[Stragglers, dict[str, Any]]:
    folder = shared / "reference/profiles/ndtimeline"
    published = {
        name: json.loads((folder / f"{name}-ST.json").read_text())
        for name in ("result", "ms", "mw")
    }
    profile = read_ndtimeline(folder / "trace-ST.parquet")
    return find_stragglers(profile), published


def test_every_step_of_the_production_job_is_replayed(
    st_job: tuple[Stragglers, dict[str, Any]],
) -> None:
    """32 steps with the host's delays: within 0.002 %; the measured step is the published one."""
    found, published = st_job
    measured = np.array([*published["result"]["step_t_base"].values()])
    assert found.measured_ps / PS_PER_S == pytest.approx(measured, abs=1e-6)
    assert np.abs(found.errors).max() < 2e-5


def test_published_slowdowns_of_the_production_job(
    st_job: tuple[Stragglers, dict[str, Any]],
) -> None:
    """Ideal step, slowdowns by stage, replica, kind and worker as published, to six digits."""
    found, published = st_job
    result = published["result"]
    steps = {"step_t_nodelay": found.prompt_ps, "step_t_noblk": found.ideal_ps}
    for name, times in steps.items():
        assert times / PS_PER_S == pytest.approx(np.array([*result[name].values()]), abs=1e-6)
    assert found.slowdown == pytest.approx(result["blocking_slowdown"], abs=1e-6)
    assert found.host_slowdown == pytest.approx(result["launch_slowdown"], abs=1e-6)
    by: dict[str, dict[Any, float]] = {
        "stage": dict(enumerate(found.by_stage)),
        "dp_rank": dict(enumerate(found.by_replica)),
        "optype": found.by_kind,
    }
    for name, mine in by.items():
        told = result[f"blocking_decompose_by_{name}"]
        assert {str(key): value for key, value in mine.items()} == pytest.approx(told, abs=1e-6)
    assert found.last_stage_share == pytest.approx(published["ms"]["Ms"], abs=1e-5)
    assert found.slowest_share == pytest.approx(published["mw"]["Mw"], abs=1e-5)
    slowest = int(np.argmax(found.by_rank))
    assert found.slowest == (found.profile.ranks[slowest].rank,)
    ideal = published["mw"]["tideal"]
    assert found.by_rank[slowest] == pytest.approx(published["mw"]["tadd"] / ideal, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration": -1.0}, "row 3: duration is -1.0: expected 0 to"),
        ({"duration": float("nan")}, "row 3: duration is nan"),
        ({"start_ts": 1e9}, "row 3: start_ts is"),
        ({"optype": "sleep"}, "optype is 'sleep': expected one of"),
        ({"rank": 77}, "5 workers in 2 stages and 2 replicas: expected 4"),
        ({"rank": 100}, "rank 100 is on another stage or replica"),
        ({"step": None}, "step is nan: expected 0 or more"),
        ({"stage": 1 << 40, "rank": 5}, "some are missing"),
    ],
)
def test_bad_rows_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = made_rows(stages=2, replicas=2, microbatches=2)
    rows[3] |= change
    with pytest.raises(TraceError, match=message):
        read_ndtimeline(write_rows(rows, tmp_path / "job.parquet"))


def test_bad_files_are_refused(tmp_path: Path) -> None:
    rows = made_rows(stages=2, replicas=1, microbatches=2)
    path = write_rows([*rows, rows[5]], tmp_path / "job.parquet")
    with pytest.raises(TraceError, match=r"with seq_id \d+ is there twice"):
        read_ndtimeline(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceError, match="not a Parquet file"):
        read_ndtimeline(path)
    with pytest.raises(TraceError, match="cannot read the profile"):
        read_ndtimeline(tmp_path / "none.parquet")
    less = [{key: value for key, value in row.items() if key != "gmc"} for row in rows]
    with pytest.raises(TraceError, match="no column gmc: expected those of NDTimeline"):
        read_ndtimeline(write_rows(less, path))


def renumbered(rows: Rows) -> Rows:
    """The rows with `seq_id` by their starts."""
    count: dict[tuple[Any, ...], int] = {}
    for row in sorted(rows, key=lambda row: (row["start_ts"], row["seq_id"])):
        key = row["rank"], row["step"], row["optype"]
        row["seq_id"] = count[key] = count.get(key, -1) + 1
    return rows


@pytest.mark.parametrize("missing", [False, True])
def test_messages_that_were_never_sent_meet_nobody(missing: bool, tmp_path: Path) -> None:
    """Recorded for every compute, also at the ends of the model; the first one may be missing."""
    rows = made_rows(stages=2, replicas=2, microbatches=4, chunks=2, steps=2)
    plain = read_ndtimeline(write_rows(rows, tmp_path / "plain.parquet"))
    added: Rows = []
    for row in rows:
        way, _, kind = row["optype"].partition("-")
        ends = {"forward": {"recv": 0, "send": 3}, "backward": {"recv": 3, "send": 0}}
        for word, chunk in ends[way].items() if kind == "compute" else ():
            if row["gmc"] == chunk:
                at = row["start_ts"] if word == "recv" else row["start_ts"] + row["duration"]
                more = {"mc": -1, "mb_id": -1, "gmc": -1, "duration": 0.0, "start_ts": at}
                added.append(row | more | {"optype": f"{way}-{word}"})
    received = [row for row in added if row["stage"] == 0 and row["optype"] == _RECV]
    for place in {(row["rank"], row["step"]) for row in received} if missing else ():
        mine = [row for row in received if (row["rank"], row["step"]) == place]
        added.remove(min(mine, key=lambda row: row["start_ts"]))
    profile = read_ndtimeline(write_rows(renumbered([*rows, *added]), tmp_path / "more.parquet"))
    assert profile.warnings == ()
    events = profile.events
    message = events.of_kind(TaskKind.SEND, TaskKind.RECV)
    members = np.bincount(events.meeting[message])
    assert (members == 1).sum() == len(added)
    assert (members == 2).sum() * 2 == message.sum() - len(added)
    assert (events.peer[message] == UNKNOWN).sum() == len(added)
    for waits in (pipeline_waits(profile), pipeline_waits(profile, posted=True)):
        steps = waits.steps_ps(waits.own_ps, waits.delay_ps)
        assert steps.tolist() == plain.step_times_ps().tolist()


def test_gradients_wait_for_a_host_that_stopped(tmp_path: Path) -> None:
    """A collection of garbage after the last backward holds up what is reduced after it."""
    rows = made_rows(stages=1, replicas=2, microbatches=2)
    last = {
        rank: max(r["start_ts"] + r["duration"] for r in rows if r["mb_id"] >= 0)
        for rank in {row["rank"] for row in rows}
    }
    rows = [row for row in rows if row["start_ts"] < min(last.values())]
    row = next(row for row in rows if row["mb_id"] < 0) | {"mc": -1, "seq_id": 0}
    for rank, end in last.items():
        place = {"rank": rank, "dp_rank": rank}
        gc = {"optype": "gc", "start_ts": end, "duration": 3.0}
        reduced = {"optype": "layernorm-grads-all-reduce", "start_ts": end + 3, "duration": 0.5}
        rows += [row | place | gc, row | place | reduced]
    profile = read_ndtimeline(write_rows(rows, tmp_path / "job.parquet"))
    waits = pipeline_waits(profile)
    assert not waits.delay_ps[profile.named("layernorm-grads-all-reduce")].any()
    own = np.where(profile.named("gc"), 0, waits.own_ps)
    shorter = waits.steps_ps(waits.own_ps, 0 * own) - waits.steps_ps(own, 0 * own)
    assert shorter.tolist() == [3 * PS_PER_S]


@pytest.mark.parametrize("empty", [None, float("nan")])
def test_columns_of_other_types_say_the_same(empty: float | None, tmp_path: Path) -> None:
    """Numbers that do not apply may be empty, whole numbers written as others, names as codes."""
    import pyarrow
    from pyarrow import parquet

    rows = made_rows(stages=2, replicas=2, microbatches=2)
    plain = read_ndtimeline(write_rows(rows, tmp_path / "plain.parquet"))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in columns.items():
        if name in ("mc", "mb_id", "gmc"):
            form = pyarrow.int64() if empty is None else pyarrow.float64()
            told = [empty if each < 0 else each for each in values]
            columns[name] = pyarrow.array(told, form, from_pandas=False)
        elif name != "optype":
            small = pyarrow.float32() if name in ("start_ts", "duration") else pyarrow.int16()
            columns[name] = pyarrow.array(values, small)
    columns["optype"] = pyarrow.array(columns["optype"]).dictionary_encode()
    parquet.write_table(pyarrow.table(columns), tmp_path / "other.parquet")
    other = read_ndtimeline(tmp_path / "other.parquet")
    for column in ("rank", "step", "name", "chunk", "microbatch", "meeting"):
        assert np.array_equal(getattr(other.events, column), getattr(plain.events, column)), column


def test_messages_that_are_missing_are_named(tmp_path: Path) -> None:
    rows = made_rows(stages=2, replicas=1, microbatches=2)
    place = next(i for i, row in enumerate(rows) if row["optype"] == "forward-send")
    del rows[place]
    profile = read_ndtimeline(write_rows(rows, tmp_path / "job.parquet"))
    (warning,) = profile.warnings
    assert "1 forward-send are not matched with computes: in 1 steps of ranks" in warning
    assert find_stragglers(profile).slowdown > 0
