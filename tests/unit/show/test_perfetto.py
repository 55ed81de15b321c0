"""Trace files: what is in them, which ranks they show, and what cannot be written."""

import gzip
import json
import re
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eyes import BLIND, lab
from helpers import Run, row
from trace_files import ReadProcess, ReadSlice, check_schema, read_trace

import stepsim
from stepsim.base.errors import OutputError, PlanError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.cli import options
from stepsim.documents.trace import Category
from stepsim.explain.as_profile import profile_of_step
from stepsim.face.steps import compare
from stepsim.show.perfetto import COLOURS, trace_bytes, trace_lines, write_trace
from stepsim.step.prepared import SimulatedStep
from stepsim.views.processes import TracedProfile, TracedRun, trace_processes
from stepsim.views.window import Window
from stepsim.workload.rows import Microbatch, Workload

HOSTILE = '</script><b>"\\\x01\x1f\u2028\u00b5\u5c42\ud800'

# reserved in Catapult's trace viewer, tracing/base/color_scheme.html
RGB = {
    "rail_response": "#4387fd",
    "rail_idle": "#ee8e00",
    "detailed_memory_dump": "#b400b4",
    "background_memory_dump": "#00b4b4",
    "light_memory_dump": "#0000b4",
    "yellow": "#ffff00",
    "thread_state_unknown": "#c79b7d",
    "thread_state_runnable": "#85a0d2",
    "generic_work": "#7d7d7d",
    "olive": "#646400",
}


@pytest.fixture(scope="module")
def gpt(workloads: Path) -> stepsim.Result:
    """16 stages of 64 ranks that behave alike."""
    return stepsim.simulate(workloads / "gpt_1024.txt", "hgx-h100")


def shown(result: SimulatedStep, *ranks: int) -> list[ReadProcess]:
    return read_trace("".join(trace_lines(trace_processes([TracedRun(result, ranks or None)]))))


@pytest.fixture(scope="module")
def whole(gpt: stepsim.Result) -> list[ReadProcess]:
    """The step and all of its processes, as they are read back."""
    return shown(gpt)


def document(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def test_a_process_says_which_ranks_it_stands_for(whole: list[ReadProcess]) -> None:
    step, *processes = whole
    assert step.name == "step of 14.45 s"
    order = [process.order for process in (step, *processes)]
    assert order == sorted(set(order))
    assert processes[0].name == "ranks 0000-0063 (64 alike), stage 0"
    assert processes[-1].name == "ranks 0960-1023 (64 alike), stage 15"


def test_every_rank_asked_for_is_named(gpt: stepsim.Result) -> None:
    _, first, last = shown(gpt, 1000, 9, 0, 8)
    assert first.name == "ranks 0000, 0008-0009 (3 of 64 alike), stage 0"
    assert last.name == "rank 1000 (1 of 64 alike), stage 15"
    assert not any(each.arrows for process in (first, last) for _, each in process.tasks())


PART = Window(start_ps=5 * PS_PER_S, end_ps=6 * PS_PER_S)


def test_a_window_shows_what_reaches_into_it(gpt: stepsim.Result, whole: list[ReadProcess]) -> None:
    run = TracedRun(gpt, None, PART)
    part = read_trace("".join(trace_lines(trace_processes([run]))))
    assert part[0].name == "step of 14.45 s, 5 s..6 s of it"
    assert [(each.start, each.end) for each in part[0].threads["step"]] == [
        (PART.start_ps, PART.end_ps)
    ]
    tasks = 0
    for few, every in zip(part[1:], whole[1:], strict=True):
        kept = {
            thread: [(s.name, s.args, s.start, s.end) for s in slices if reaches(s)]
            for thread, slices in every.threads.items()
        }
        assert kept == {
            thread: [(s.name, s.args, s.start, s.end) for s in slices]
            for thread, slices in few.threads.items()
        } | {thread: [] for thread in kept.keys() - few.threads}
        tasks += sum(1 for _ in few.tasks())
    assert run.slices == tasks > 1000
    arrows = [a for process in part for _, each in process.tasks() for a in each.arrows]
    assert len(arrows) == 2 * len({number for _, number in arrows}) > 0


def reaches(each: ReadSlice) -> bool:
    ends = each.end > PART.start_ps or each.start >= PART.start_ps
    return ends and each.start < PART.end_ps


def test_counters_of_a_window_go_on_as_those_of_the_step(
    gpt: stepsim.Result, whole: list[ReadProcess]
) -> None:
    part = read_trace("".join(trace_lines(trace_processes([TracedRun(gpt, None, PART)]))))
    for few, every in zip(part, whole, strict=True):
        assert few.counters.keys() == every.counters.keys()
        for name, counts in every.counters.items():
            last = [values for time, values in counts if time <= PART.start_ps][-1]
            inside = [(t, v) for t, v in counts if PART.start_ps < t < PART.end_ps]
            assert few.counters[name] == [(PART.start_ps, last), *inside]


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("20s..21s", "window is 20 s..21 s: the step takes 14.45 s"),
        ("3s..2s", "window is 3 s..2 s: expected two times, the earlier first, e.g. 2s..3s"),
        ("3s", "window is '3s': expected two times"),
        ("3..4", "'3' has no unit"),
    ],
)
def test_a_window_that_shows_nothing_is_refused(
    gpt: stepsim.Result, tmp_path: Path, window: str, said: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        gpt.write_trace(tmp_path / "step.json", window=window)
    assert not list(tmp_path.iterdir())


def test_a_large_trace_is_told_before(
    run: Run, moe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "step.json"
    command = ("simulate", moe, "-t", "hgx-h100", "--trace", target)
    assert "will have about" not in run(*command)[2]
    size = target.stat().st_size
    monkeypatch.setattr(options, "_LARGE_BYTES", size // 2)
    said = run(*command)[2]
    assert f"warning: {target} will have about" in said
    assert "--window and --ranks show less" in said
    assert "will have about" not in run(*command, "--window", "0s..1ms")[2]
    assert "will have about" not in run(*command, "-q")[2]
    told = trace_bytes(TracedRun(stepsim.simulate(moe, "hgx-h100")).slices, target)
    assert told == pytest.approx(size, rel=0.3)


def test_the_step_says_what_was_run(gpt: stepsim.Result, whole: list[ReadProcess]) -> None:
    (step,) = whole[0].threads["step"]
    facts = step.args
    assert (step.start, step.end) == (0, gpt.report.step_time_ps)
    assert facts["workload"] == "gpt_1024.txt"
    assert facts["schedule"] == "1f1b"
    assert facts["npus"] == 1024
    assert facts["warnings"] == list(gpt.report.warnings)
    assert any("16 of 1024 ranks are simulated" in each for each in facts["assumptions"])


def test_slices_say_what_they_are(gpt: stepsim.Result) -> None:
    process = shown(gpt, 64)[1]
    gathers = [s for s in process.threads["tp"] if s.name == "tp all_gather"]
    facts = gathers[0].args
    assert facts["waited_for"]
    assert (
        facts.items()
        >= {
            "stage": 1,
            "chunk": 0,
            "microbatch": 0,
            "action": "1F0",
            "phase": "forward",
            "size_bytes": 128 << 20,
            "algorithm": "ring LL128",
            "ranks": 8,
            "group": "tp",
        }.items()
    )


def test_a_recorded_step_may_split_its_backwards(moe: Path) -> None:
    step = stepsim.simulate(moe, "hgx-h100", microbatches=4, schedule="zb-h1")
    profile = profile_of_step(step.timeline, source="made")
    run = TracedProfile(profile=profile, ranks=(0, 127))
    text = "".join(trace_lines(trace_processes([run])))
    assert {f'"cat":"{each}_grad"' in text for each in ("input", "weight")} == {True}


@pytest.mark.parametrize("blindness", BLIND)
def test_colours_are_told_apart(blindness: str) -> None:
    assert COLOURS.keys() == set(Category)
    seen = {c: lab(RGB[COLOURS[c]], blindness) for c in Category if c is not Category.STEP}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 14, (one, other)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_the_same_run_gives_the_same_file(run: Run, moe: Path, tmp_path: Path, suffix: str) -> None:
    target, kept = tmp_path / f"step{suffix}", tmp_path / "kept"
    assert run("simulate", moe, "--trace", target)[0] == 0
    shutil.move(target, kept)
    assert run("simulate", moe, "--trace", target)[0] == 0
    assert target.read_bytes() == kept.read_bytes()
    assert document(target)["otherData"] == {
        "program": "stepsim",
        "version": stepsim.__version__,
        "command": f"stepsim simulate {moe} --trace {target}",
    }


def test_compressed_is_the_same_trace(moe: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "step.json", tmp_path / "step.json.gz"
    result = stepsim.simulate(moe, "hgx-h100", microbatches=4)
    result.write_trace(plain, ranks=[0])
    result.write_trace(packed, ranks=[0])
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert len(packed.read_bytes()) < len(plain.read_bytes()) / 5
    check_schema(plain.read_text())


def test_a_comparison_is_one_trace(run: Run, moe: Path, tmp_path: Path) -> None:
    target = tmp_path / "both.json"
    names = ["1f1b", "interleaved:2"]
    code, _, err = run("compare", moe, "-m", "4", "--schedules", ",".join(names), "--trace", target)
    assert code == 0, err
    processes = read_trace(target.read_text())
    check_schema(target.read_text())
    assert [process.name.split(": ")[0] for process in processes] == [
        n for n in names for _ in range(5)
    ]
    arrows = [a for process in processes for _, each in process.tasks() for a in each.arrows]
    assert len(set(arrows)) == len(arrows)


def test_runs_of_a_comparison_are_told_as_they_are_alone(moe: Path, tmp_path: Path) -> None:
    both = compare(moe, ["1f1b", "gpipe"], microbatches=4)
    runs = [TracedRun(result, [0, 40], name=name) for name, result in both.valid]
    write_trace(trace_processes(runs), tmp_path / "both.json")
    processes = read_trace((tmp_path / "both.json").read_text())
    for (_, result), told in zip(both.valid, (processes[:3], processes[3:]), strict=True):
        for alone, each in zip(shown(result, 0, 40), told, strict=True):
            assert each.counters == alone.counters
            assert [(s, e.name, e.start, e.end) for s, e in each.tasks()] == [
                (s, e.name, e.start, e.end) for s, e in alone.tasks()
            ]


def test_names_from_files_stay_names(tmp_path: Path) -> None:
    layer = (replace(row(5, 5), name=HOSTILE),)
    workload = Workload(
        source=HOSTILE,
        npus=1,
        microbatches=(Microbatch(embedding=(), layers=(layer,), head=()),),
    )
    target = tmp_path / "step.json"
    run = TracedRun(stepsim.simulate(workload, "hgx-h100"), name=HOSTILE)
    write_trace(trace_processes([run]), target, HOSTILE)
    text = target.read_text("utf-8")
    assert not [each for each in text if each < " " and each != "\n"]
    check_schema(text)
    assert document(target)["otherData"]["command"] == HOSTILE
    step, rank = read_trace(text)
    assert step.threads["step"][0].name == HOSTILE
    assert rank.name.startswith(HOSTILE)
    assert {each.name for _, each in rank.tasks()} == {HOSTILE}


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ("128", "ranks: the job has no rank 128: expected 0 to 127"),
        ("1,0-2", "a rank is named twice"),
        ("", "expected numbers and ranges such as 0-7,16"),
    ],
)
def test_ranks_that_make_no_sense(
    run: Run, moe: Path, tmp_path: Path, ranks: str, message: str
) -> None:
    target = tmp_path / "step.json"
    code, out, err = run("simulate", moe, "--quiet", "--trace", target, "--ranks", ranks)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_failed_trace_leaves_nothing(
    gpt: stepsim.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlanError, match="no rank 4096"):
        gpt.write_trace(tmp_path / "step.json", ranks=[4096])
    with pytest.raises(OutputError, match="does not exist"):
        gpt.write_trace(tmp_path / "nowhere" / "step.json")

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("stepsim.views.processes.live_activations", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpt.write_trace(tmp_path / "step.json.gz")
    assert not list(tmp_path.iterdir())
