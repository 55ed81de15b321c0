"""Orders of schedules, written by hand from their papers and sources."""

import pytest
from helpers import collective, row

from stepsim import simulate
from stepsim.base.axes import CollectiveKind, Group, Part, degrees_of
from stepsim.base.errors import ScheduleError
from stepsim.parallel.schedules import FusedPair, build
from stepsim.workload.rows import Microbatch, Row, Work, Workload

V_MIN = """
0F0,5F0,0F1,5I0,5W0,5F1,0F2,0I0,5I1,0W0,5W1,5F2,0F3,0I1,5I2,0W1,5W2,5F3,0I2,5I3,0W2,5W3,0I3,0W3
1F0,4F0,1F1,4I0,4W0,4F1,1I0,1F2,1W0,4I1,4F2,4W1,1I1,1F3,1W1,4I2,4F3,4W2,1I2,1W2,4I3,4W3,1I3,1W3
2F0,3F0,2F1,3F1,3I0,2I0,3W0,2W0,2F2,3F2,3I1,2I1,3W1,2W1,2F3,3F3,3I2,2I2,3W2,2W2,3I3,2I3,3W3,2W3
"""
"""Three ranks: forwards begin at r and 5 - r, gradients at 8 + r and 13 - r, every 6 units.

The blocks need a wait of 2 at the turn (rank 0 would meet itself at 0 and 6). W comes where a rank
waits, or when 4 chunks are live: (P + 4) // 3 = 2 microbatches.
"""
V_HALF = """
0F0,3F0,0F1,3I0,3W0,3F1,0I0,3I1,0W0,3W1,0I1,0W1
1F0,2F0,1F1,2F1,2I0,1I0,2W0,1W0,2I1,1I1,2W1,1W1
"""
"""Two ranks: forwards begin at 2r and 4 - r, gradients at 8 + 2r and 13 - r, every 6 units."""
COMBINED = """
0F0,0F1,2F0,2F1,0F2,(0F3;2B0),(2F2;2B1),(2F3;0B0),0B1,2B2,2B3,0B2,0B3
1F0,1F1,3F0,(3F1;3B0),(1F2;3B1),(1F3;1B0),(3F2;1B1),(3F3;3B2),3B3,1B2,1B3
"""
"""Megatron's table of P = 2, v = 2, groups of 2: warm-up 2(P-1-r) + (v-1)g + 1 is 5 and 3."""
ONE_RANK = """
0F0,(0F1;0B0),(0F2;0B1),0B2
"""
"""`combined_1f1b_schedule_for_no_pipelining`: F, then pairs, then B."""


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "order"),
    [
        ("v-min", 3, 4, V_MIN),
        ("v-half", 2, 2, V_HALF),
        ("combined-1f1b", 2, 4, COMBINED),
        ("combined-1f1b", 1, 3, ONE_RANK),
    ],
)
def test_orders_of_papers(name: str, ranks: int, microbatches: int, order: str) -> None:
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    found = [",".join(tokens).replace("OVERLAP_F_B", "") for tokens in schedule.tokens()]
    assert found == order.split()


def test_halves_of_a_combined_pair_are_independent() -> None:
    """Never a forward with a backward of its own microbatch and stage: warm-up is one longer."""
    for ranks, chunks, microbatches in ((2, 2, 4), (4, 3, 8), (3, 2, 6)):
        shape = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
        combined, plain = (build(name, **shape) for name in ("combined-1f1b", "interleaved"))
        assert combined.warm_up == tuple(
            min(lead + 1, chunks * microbatches) for lead in plain.warm_up
        )
        for order in combined.orders:
            for pair in order:
                if isinstance(pair, FusedPair):
                    forward, backward = pair.parts()
                    assert (forward.stage, forward.microbatch) != (
                        backward.stage,
                        backward.microbatch,
                    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ranks": 4, "microbatches": 8, "chunks": 1}, "chunks is 1: expected at least 2"),
        ({"ranks": 1, "microbatches": 8, "chunks": 2}, "chunks is 2: expected 1 on one rank"),
        ({"ranks": 4, "microbatches": 3}, "microbatches is 3: expected at least 4"),
        ({"ranks": 4, "microbatches": 8, "group_size": 3}, "group_size is 3: expected from 4"),
    ],
)
def test_combined_1f1b_refuses_what_megatron_does(arguments: dict[str, int], words: str) -> None:
    shape = {"chunks": None, **arguments}
    with pytest.raises(ScheduleError, match=f"schedule combined-1f1b: {words}"):
        build("combined-1f1b", **shape)  # type: ignore[arg-type]


def mixture_of_experts(layers: int, microbatches: int) -> Workload:
    """Two stages of layers: attention, dispatch, experts, combine; 8 MiB to four expert ranks."""
    exchange = collective(8 << 20, Group.EP, CollectiveKind.ALL_TO_ALL)
    both = Work(compute_ps=1_000_000, comms=(exchange,))
    sends = Row(name="exchange", forward=both, input_grad=both, weight_grad=Work())
    computes = row(400_000_000, 400_000_000)
    block = Microbatch(embedding=(), layers=((computes, sends, computes, sends),) * layers, head=())
    return Workload(
        source="experts",
        degrees=degrees_of(pp=2, ep=4),
        npus=8,
        microbatches=(block,) * microbatches,
    )


@pytest.mark.parametrize(("layers", "microbatches"), [(2, 2), (2, 8), (6, 8)])
def test_combined_pairs_hide_all_to_alls_of_experts(layers: int, microbatches: int) -> None:
    """Exchanges of warm-up and cool-down stay exposed, those of pairs are hidden by the others'."""
    work = mixture_of_experts(layers, microbatches)
    found = {
        name: simulate(work, "hgx-h100", schedule=name, p2p="eager")
        for name in ("interleaved:2", "combined-1f1b:2")
    }
    (exchange,) = {use.time_ps for use in found["interleaved:2"].report.comms if use.group == "ep"}
    assert 20_000_000 < exchange < 400_000_000
    exposed = {name: each.report.breakdown_ps[Part.EXPOSED_EP.key] for name, each in found.items()}
    of_chunk = layers * exchange  # two exchanges of each of half as many layers
    assert exposed["interleaved:2"] == 2 * 2 * microbatches * of_chunk
    leads = found["combined-1f1b:2"].timeline.graph.schedule.warm_up
    assert exposed["combined-1f1b:2"] == sum(2 * lead for lead in leads) / 2 * of_chunk
