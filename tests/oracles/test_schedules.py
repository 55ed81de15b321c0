"""Orders, refusals and activation peaks of the original implementations, case by case."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepsim.base.errors import ScheduleError
from stepsim.explain.memory import HeldBytes, step_memory
from stepsim.parallel.schedules import Placement, build
from stepsim.parallel.schedules.base import peak_live

NAMES = {
    "1f1b": "1f1b",
    "dualpipe": "dualpipe",
    "dualpipe_v": "dualpipe-v",
    "gpipe": "gpipe",
    "interleaved_megatron": "interleaved",
    "interleaved_torch": "interleaved",
    "interleaved_zero_bubble": "interleaved-zb",
    "looped_bfs": "looped-bfs",
    "zb_h1": "zb-h1",
    "zb_v": "zb-v",
}
REFUSALS = {"interleaved_megatron": 30, "zb_v": 14, "dualpipe": 5, "dualpipe_v": 5}


def cases(shared: Path, implementation: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Cases of a file, each with the arguments of `build` that ask for it."""
    document = json.loads((shared / f"reference/pipeline/{implementation}.json").read_text())
    found = []
    for case in document["cases"]:
        shape = {"ranks": case["P"], "microbatches": case["m"], "chunks": case["v"]}
        options: dict[str, Any] = {}
        if implementation == "interleaved_megatron":
            options["group_size"] = case["params"]["microbatch_group_size_per_vp_stage"]
        if implementation == "interleaved_torch":
            options["grouping"] = "torch"
        found.append((case, {"name": NAMES[implementation], **shape, **options}))
    return found


def test_every_file_has_a_builder(shared: Path) -> None:
    assert {path.stem for path in (shared / "reference/pipeline").glob("*.json")} == NAMES.keys()


@pytest.mark.parametrize("implementation", NAMES)
def test_orders_and_peaks_are_those_of_the_original(implementation: str, shared: Path) -> None:
    compared = 0
    for case, arguments in cases(shared, implementation):
        if "error" in case:
            continue
        schedule = build(**arguments)
        assert schedule.tokens() == case["order"], arguments
        peaks = peak_live(schedule)
        assert [p.freed_at_b for p in peaks] == case["peak_inflight"]["freed_at_B"], arguments
        freed_at_w = case["peak_inflight"]["freed_at_W"]
        assert [p.freed_at_w for p in peaks] == freed_at_w, arguments
        memory = step_memory(_a_byte_each(schedule.placement), schedule)
        assert [peak.total for peak in memory.peaks] == freed_at_w, arguments
        compared += 1
    assert compared


def _a_byte_each(placement: Placement) -> HeldBytes:
    ones = np.ones((placement.ranks, placement.chunks), dtype=np.int64)
    return HeldBytes(activations=ones, logits=0 * ones, recomputed=0 * ones[:, 0], fixed={})


@pytest.mark.parametrize("implementation", REFUSALS)
def test_what_the_original_refuses_is_refused(implementation: str, shared: Path) -> None:
    refused = [call for case, call in cases(shared, implementation) if "error" in case]
    for arguments in refused:
        with pytest.raises(ScheduleError, match=f"^schedule {arguments['name']}: .*: expected "):
            build(**arguments)
    assert len(refused) == REFUSALS[implementation]


@pytest.mark.parametrize("implementation", sorted(NAMES.keys() - REFUSALS.keys()))
def test_the_other_originals_refuse_no_case(implementation: str, shared: Path) -> None:
    assert not [case for case, _ in cases(shared, implementation) if "error" in case]


@pytest.mark.parametrize("implementation", NAMES)
def test_stages_lie_where_the_original_has_them(implementation: str, shared: Path) -> None:
    for case, arguments in cases(shared, implementation):
        if "error" in case:
            continue
        placement = build(**arguments).placement
        ranks = case["stage_to_rank"]
        by_microbatch = ranks if isinstance(ranks, dict) else {"mb<m/2": ranks}
        for which, expected in by_microbatch.items():
            microbatch = 0 if which == "mb<m/2" else case["m"] - 1
            stages = range(placement.stages)
            assert [placement.rank(stage, microbatch) for stage in stages] == expected
