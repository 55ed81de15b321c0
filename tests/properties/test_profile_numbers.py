"""Numbers of profiles mean one thing: steps are ordered, and gaps are the time of nobody."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepsim.base.structs import Values
from stepsim.explain.path import critical_parts
from stepsim.explain.shares import rank_shares
from stepsim.explain.stragglers import find_stragglers
from stepsim.files.traces.joined import RankOperations, join_ranks
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.run.spans import TaskKind
from stepsim.runs.improve import improve_profile

NAMES = {"gemm": TaskKind.COMPUTE, "norm": TaskKind.COMPUTE, "nccl AllReduce": TaskKind.COLLECTIVE}
OPERATION = st.tuples(
    st.sampled_from(sorted(NAMES)),
    st.integers(0, 2),  # stream
    st.integers(0, 60),  # microseconds after the operation before it on its stream
    st.integers(1, 200),  # microseconds that it takes
)


def profile_of(ranks: list[list[list[tuple[str, int, int, int]]]]) -> Profile:
    """Steps of ranks whose streams run the operations given, each after a gap."""
    parts = []
    for rank, steps in enumerate(ranks):
        rows = []
        begin = 0
        for step, operations in enumerate(steps):
            free = dict.fromkeys(range(3), begin)
            for name, stream, gap, took in operations:
                start = free[stream] + gap
                free[stream] = start + took
                rows.append((start, start + took, stream, step, name))
            begin = max(free.values())
        rows.sort()
        starts, ends, streams, places, names = zip(*rows, strict=True)
        columns: Values = {
            "name": names,
            "group": [("", ())] * len(names),
            "form": [(name,) for name in names],
            "step": np.array(places, dtype=np.int64),
            "stream": np.array(streams, dtype=np.int64),
            "start_ps": np.array(starts, dtype=np.int64) * 10**6,
            "end_ps": np.array(ends, dtype=np.int64) * 10**6,
            "kind": np.array([NAMES[name] for name in names], dtype=np.int64),
        }
        parts.append(
            RankOperations(
                rank=rank,
                file=f"rank{rank}",
                columns=columns,
                base_ps=0,
            )
        )
    return join_ranks("made", parts, "made", one_clock=True)


STEPS = st.lists(st.lists(OPERATION, min_size=1, max_size=12), min_size=1, max_size=3)


@given(STEPS)
def test_one_rank_gains_by_gaps_what_it_is_idle(
    steps: list[list[tuple[str, int, int, int]]],
) -> None:
    """A rank that is busy 99.6 % of its step gains 0.4 % where the host never stops it."""
    profile = profile_of([steps])
    found = find_stragglers(profile)
    (share,) = rank_shares(pipeline_waits(profile), [1])
    step_ps = int(profile.step_times_ps().mean())
    busy = step_ps - share.idle_ps
    assert found.prompt_ps.mean() == pytest.approx(busy, abs=2 * len(steps))
    changes = {each.name: each for each in improve_profile(profile).changes}
    if "no-host-gaps" in changes:
        assert changes["no-host-gaps"].gain <= 1 - (busy - 1) / step_ps + 1e-9


@given(STEPS, STEPS)
def test_steps_are_ordered(
    first: list[list[tuple[str, int, int, int]]], second: list[list[tuple[str, int, int, int]]]
) -> None:
    """Replayed, without host delays, with ideal durations: none is longer than the one before."""
    count = min(len(first), len(second))
    for ranks in ([first], [first[:count], second[:count]]):
        profile = profile_of(ranks)
        found = find_stragglers(profile)
        assert (found.prompt_ps <= found.replayed_ps).all()
        assert (found.ideal_ps <= found.prompt_ps).all()
        assert found.slowdown >= 1
        improved = improve_profile(profile)
        gains = [each.gain for each in improved.changes if each.name == "no-host-gaps"]
        assert improved.ceiling >= max(gains, default=0) - 1e-9


@given(STEPS)
def test_busy_time_is_at_most_kernel_time(steps: list[list[tuple[str, int, int, int]]]) -> None:
    """Busy time counts a moment once, kernel time every kernel in it; the path has all of both."""
    waits = pipeline_waits(profile_of([steps]), posted=True)
    (share,) = rank_shares(waits, [1])
    assert share.compute_ps <= share.compute_kernels_ps
    assert share.communication_ps <= share.communication_kernels_ps
    assert share.exposed_ps <= share.communication_ps
    events, count = waits.profile.events, len(steps)
    kernels = share.compute_kernels_ps + share.communication_kernels_ps
    assert kernels == pytest.approx(int(events.duration_ps.sum()) / count, abs=2)
    whole = sum(part.whole_ps for part in critical_parts(waits))
    assert whole == pytest.approx(waits.profile.step_times_ps().mean(), abs=20 * count)


def test_forms_are_numbered_as_they_come() -> None:
    """They are texts, whose order in a set is another one in every process."""
    profile = profile_of([[[(name, 0, 0, 1) for name in (*NAMES, *NAMES)]]])
    assert profile.events.form.tolist() == [0, 1, 2] * 2
