"""PyTorch profiler traces: one rank, a folder, an archive; what cannot be read is one line."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run

from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.explain.shares import device_shares, rank_shares
from stepsim.files.traces.forms import is_profile, read_profile
from stepsim.measured.profile.events import HostOperator, Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.run.spans import UNKNOWN, TaskKind
from stepsim.runs.improve import improve_profile

Raw = dict[str, Any]


def kernel(name: str, stream: int, start: float, took: float, **more: object) -> Raw:
    arguments = {"stream": stream, "correlation": int(start * 10), **more}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": took, "args": arguments}


def launch(of: Raw, before: float) -> Raw:
    arguments = {"correlation": of["args"]["correlation"]}
    begin = of["ts"] - before
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": begin,
        "dur": 1,
        "args": arguments,
    }


def trace_of(rank: int, *, late: float = 0, clock: float = 1e12, steps: int = 2) -> Raw:
    """A rank that computes 100 us, `late` more, and all-reduces until the slowest, per step."""
    events: list[Raw] = []
    for step in range(steps):
        begin = clock + 1000 * step
        work = kernel("gemm", 7, begin + 10, 100 + late)
        reduced = kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            20,
            begin + 110 + late,
            250 - late,
            **{
                "Collective name": "allreduce",
                "In msg nelems": 1000,
                "Out msg nelems": 1000,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Ranks": "[0, 1]",
            },
        )
        last = kernel("adam", 7, begin + 361, 50)
        events += [work, reduced, last]
        events += [launch(work, 5), launch(reduced, 5 + late), launch(last, 300)]
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 3}"}
            | {"ts": begin, "dur": 900, "args": {}}
        )
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    }


def write(path: Path, raw: Raw) -> Path:
    data = json.dumps(raw).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks whose clocks differ by a second; rank 1 computes 40 us longer."""
    path = tmp_path / "run"
    path.mkdir()
    write(path / "rank0.pt.trace.json", trace_of(0))
    write(path / "rank1.pt.trace.json.gz", trace_of(1, late=40, clock=1e12 + 1e6))
    return path


def test_ranks_meet_on_one_axis(folder: Path) -> None:
    assert is_profile(folder)
    profile = read_profile(folder)
    assert not profile.warnings
    assert [each.rank for each in profile.ranks] == [0, 1]
    assert profile.steps == (3, 4)
    assert profile.names == ("adam", "gemm", "nccl allreduce")
    events = profile.events
    met = events.of_kind(TaskKind.COLLECTIVE)
    assert set(events.size_bytes[met].tolist()) == {4000}
    assert np.bincount(events.meeting[met]).max() == 2
    assert {profile.groups[group].ranks for group in events.group[met].tolist()} == {(0, 1)}
    ends = events.end_ps[met].reshape(2, -1)
    assert np.array_equal(ends[0], ends[1]), "clocks are told apart by what ends together"
    assert (events.launch_ps != UNKNOWN).all()
    assert any(each.name == "overlap-nccl-allreduce" for each in improve_profile(profile).changes)
    waits = pipeline_waits(profile, posted=True)
    assert waits.own_ps[met].tolist() == [210 * 10**6] * 4, "from the arrival of the last"
    assert np.array_equal(waits.steps_ps(waits.own_ps, waits.delay_ps), profile.step_times_ps())


def test_other_files_of_a_folder_are_no_traces(folder: Path) -> None:
    (folder / "settings.json").write_text('{"lr": 0.1}')
    assert len(read_profile(folder).ranks) == 2
    for each in folder.glob("rank*"):
        each.unlink()
    assert not is_profile(folder)


def test_one_rank_alone_says_what_it_lacks(folder: Path) -> None:
    profile = read_profile(folder / "rank0.pt.trace.json")
    assert "1 of 2 ranks" in profile.warnings[0]
    (share,) = device_shares(profile)
    assert share.compute_ps == 2 * 150 * 10**6
    assert share.other_ps == 2 * 250 * 10**6
    assert share.span_ps == share.compute_ps + share.other_ps + share.idle_ps


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as into:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            into.addfile(member, io.BytesIO(data))
    return path


def test_an_archive_is_a_folder(folder: Path, tmp_path: Path) -> None:
    files = {f"run/{each.name}": each.read_bytes() for each in folder.iterdir()}
    packed = archive(tmp_path / "run.tar.gz", files)
    assert is_profile(packed)
    whole, again = read_profile(folder), read_profile(packed)
    assert np.array_equal(whole.events.start_ps, again.events.start_ps)


def test_what_cannot_be_read_is_one_line(folder: Path, tmp_path: Path) -> None:
    packed = folder / "rank1.pt.trace.json.gz"
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"cut.json.gz: cannot read the trace: .* ended before"):
        read_profile(cut)
    other = tmp_path / "other.json"
    other.write_text('{"traceEvents": [')
    with pytest.raises(TraceError, match="not a PyTorch trace"):
        read_profile(other)
    with pytest.raises(TraceError, match="no kernel in the trace"):
        read_profile(write(other, {"traceEvents": []}))
    for wrong, said in (
        ({"dur": -5}, "ends before it starts"),
        ({"args": {"correlation": [1]}}, "arguments of 'gemm'"),
        ({"ts": 1e300}, "a time or a number is too large"),
    ):
        trace = trace_of(0)
        trace["traceEvents"][0] |= wrong
        with pytest.raises(TraceError, match=said):
            read_profile(write(other, trace))
    empty = trace_of(0)
    for event in empty["traceEvents"]:
        event["ts"] += 1e7 * (event["cat"] == "user_annotation")
    with pytest.raises(TraceError, match="no kernel was launched inside of the recorded steps"):
        read_profile(write(other, empty))
    empty["traceEvents"][-1]["ts"] = 1e12
    assert read_profile(write(other, empty)).steps == (4,)
    write(folder / "rank0.again.pt.trace.json", trace_of(0))
    with pytest.raises(TraceError, match="rank 0 is also in"):
        read_profile(folder)


def operator(name: str, start: float, took: float, **arguments: object) -> Raw:
    event = {"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": took, "tid": 1}
    return event | {"args": arguments}


def operators_of(folder: Path, *events: Raw) -> Profile:
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": [*events]}))
    return read_profile(folder)


def test_a_kernel_is_of_the_operator_with_its_number(tmp_path: Path) -> None:
    dims = {"Input Dims": [[8, 4], [4, 6], [], "none"]}
    profile = operators_of(
        tmp_path / "run",
        operator("aten::mm", 1.0, 2.0, **{"External id": 77}, **dims),
        operator("aten::add", 4.0, 1.0, **{"External id": "78"}, **{"Input Dims": {"a": 1}}),
        kernel("Kernel2", 7, 10.0, 5.0, **{"External id": 77}),
        kernel("Kernel3", 7, 20.0, 5.0, **{"External id": [1]}),
    )
    numbers = profile.events.operator.tolist()
    assert profile.operators[numbers[0]] == HostOperator(name="aten::mm", sides=((8, 4), (4, 6)))
    assert numbers[1] == UNKNOWN


def test_without_a_number_it_is_the_innermost_one_around_the_launch(tmp_path: Path) -> None:
    inner, after = kernel("inner", 7, 100.0, 5.0), kernel("after", 7, 200.0, 5.0)
    launches = [launch(inner, 80) | {"tid": 1}, launch(after, 10) | {"tid": 1}]
    profile = operators_of(
        tmp_path / "run",
        operator("aten::linear", 10.0, 50.0, **{"Input Dims": "cut"}),
        operator("aten::addmm", 15.0, 20.0),
        operator("aten::t", 12.0, 1.0),
        *(inner, after, *launches),
    )
    first, second = profile.events.operator.tolist()
    assert profile.operators[first] == HostOperator(name="aten::addmm")
    assert second == UNKNOWN


def test_the_peak_of_the_allocator_is_read(tmp_path: Path) -> None:
    def held(device: int, size: object) -> Raw:
        arguments = {"Device Type": device, "Total Allocated": size}
        return {"ph": "i", "name": "[memory]", "ts": 1.0, "args": arguments}

    events = [held(1, 500), held(1, 800), held(0, 9000), held(1, "many"), held(1, 700)]
    profile = operators_of(tmp_path / "run", kernel("gemm", 7, 10.0, 5.0), *events)
    assert profile.peak_bytes == 800


def test_two_runs_in_a_folder_are_refused(folder: Path) -> None:
    """Other ranks of another run: by the size of the job, or by the time of day."""
    write(folder / "rank1.pt.trace.json.gz", trace_of(1, clock=1.7e15 + 5e9))
    write(folder / "rank0.pt.trace.json", trace_of(0, clock=1.7e15))
    with pytest.raises(TraceError, match=r"recorded 1\.4 hours after .*rank0.* one run per folder"):
        read_profile(folder)
    other = trace_of(1)
    other["distributedInfo"]["world_size"] = 16
    write(folder / "rank1.pt.trace.json.gz", other)
    write(folder / "rank0.pt.trace.json", trace_of(0))
    with pytest.raises(
        TraceError, match=r"a job of 16 ranks, .* of 2: expected one run per folder"
    ):
        read_profile(folder)


def test_a_clock_that_steps_is_told(folder: Path) -> None:
    stepped = trace_of(1, late=40, steps=6)
    for event in stepped["traceEvents"]:
        event["ts"] += 4e5 * (event["ts"] >= 1e12 + 4000)
    write(folder / "rank1.pt.trace.json.gz", stepped)
    write(folder / "rank0.pt.trace.json", trace_of(0, steps=6))
    (warning,) = read_profile(folder).warnings
    assert "rank1" in warning
    assert "the clock of rank 1 steps by about 400 ms" in warning


def shares(profile: Profile) -> list[tuple[float, float, float]]:
    return [
        (
            100 * each.idle_ps / each.span_ps,
            100 * each.compute_ps / each.span_ps,
            100 * each.other_ps / each.span_ps,
        )
        for each in device_shares(profile)
    ]


def test_param_dlrm_is_replayed_and_its_collectives_joined(shared: Path) -> None:
    """Eight ranks: all eight NCCL kernels of each meet; shares are those of HTA 0.5.0."""
    profile = read_profile(shared / "reference/profiles/kineto/param_dlrm_8ranks.tar.gz")
    met = profile.events.meeting[profile.events.meeting != UNKNOWN]
    assert len(met) == 64
    assert set(np.unique(met, return_counts=True)[1].tolist()) == {8}
    waits = pipeline_waits(profile, posted=True)
    ends = waits.ends_ps(waits.own_ps, waits.delay_ps)
    for rank in range(8):
        mine = profile.events.rank == rank
        first = profile.events.start_ps[mine].min()
        measured = profile.events.end_ps[mine].max() - first
        assert ends[mine].max() - first == pytest.approx(measured, rel=0.001)
    found = shares(profile)
    assert len(found) == 8
    assert found[0] == pytest.approx((49.34, 7.95, 42.71), abs=0.1)
    assert found[7] == pytest.approx((75.75, 9.66, 14.59), abs=0.1)


@pytest.mark.parametrize(
    ("name", "steps", "hta"),
    [
        ("hta_nccl_data", (4, 5), (77.78, 17.26, 4.97)),
        ("hta_sampled_rank-0", (551,), (53.56, 17.71, 28.74)),
    ],
)
def test_shares_are_those_of_holistic_trace_analysis(
    shared: Path, name: str, steps: tuple[int, ...], hta: tuple[float, ...]
) -> None:
    """HTA 0.5.0 leaves out the last step of a trace.

    It rounds starts up and ends down to whole microseconds, which a trace of nanoseconds shows.
    """
    profile = read_profile(shared / f"reference/profiles/kineto/{name}.json.gz").of_steps(*steps)
    events, us = profile.events, 10**6
    up = -(-events.start_ps // us) * us
    down = np.maximum(events.end_ps // us * us, up)
    rounded = replace(profile, events=replace(events, start_ps=up, end_ps=down))
    assert shares(rounded)[0] == pytest.approx(hta, abs=0.1)
    assert shares(profile)[0] == pytest.approx(hta, abs=0.6)


def test_kernels_of_libraries_meet_as_nccl_does(tmp_path: Path) -> None:
    """DeepEP's kernels of two ranks are one exchange; what one counts for itself is a compute."""
    for rank in range(2):
        trace = trace_of(rank, late=40 * rank, steps=1)
        for event in trace["traceEvents"]:
            if event["name"].startswith("nccl"):
                event["name"] = "void deep_ep::internode::dispatch<false, 8>(int4*, float*)"
                event["args"] = {"stream": 20, "correlation": event["args"]["correlation"]}
            if event["name"] == "gemm":
                event["name"] = "void deep_ep::layout::get_dispatch_layout<256>(long const*)"
        write(tmp_path / f"rank{rank}.pt.trace.json", trace)
    profile = read_profile(tmp_path)
    met = profile.events.of_kind(TaskKind.COLLECTIVE)
    assert profile.names[0] == "adam"
    assert {profile.names[i] for i in profile.events.name[met].tolist()} == {"deep_ep dispatch"}
    assert len(set(profile.events.meeting[met].tolist())) == 1
    assert device_shares(profile)[0].other_ps == 250 * 10**6


@pytest.mark.parametrize(
    "name", ["Memcpy PtoP (Device -> Device)", "Memcpy DtoD (Device -> Device)"]
)
def test_copy_engines_carry_messages(tmp_path: Path, name: str) -> None:
    """A copy to another device communicates, and so does any copy in a range of NCCL."""
    trace = trace_of(0, steps=1)
    copy = kernel(name, 31, 1e12 + 400, 100) | {"cat": "gpu_memcpy", "tid": 31}
    other = kernel(name, 32, 1e12 + 400, 100) | {"cat": "gpu_memcpy", "tid": 32}
    ranged = {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:_all_gather_base", "tid": 31}
    trace["traceEvents"] += [copy, other, ranged | {"ts": 1e12 + 399, "dur": 102, "args": {}}]
    profile = read_profile(write(tmp_path / "rank0.pt.trace.json", trace))
    kinds = dict(zip(profile.events.stream.tolist(), profile.events.kind.tolist(), strict=True))
    assert kinds[31] == TaskKind.SEND
    assert kinds[32] == (TaskKind.SEND if "PtoP" in name else TaskKind.COPY)
    assert profile.events.peer.tolist() == [UNKNOWN] * len(profile.events)


def test_other_devices_are_read(tmp_path: Path) -> None:
    """MTIA's operations have a category of their own, and threads in place of streams."""
    trace = trace_of(0, steps=1)
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel":
            event |= {"cat": "mtia_ccp_events", "tid": event["args"].pop("stream")}
        if event["cat"] == "cuda_runtime":
            event["cat"] = "mtia_runtime"
    profile = read_profile(write(tmp_path / "rank0.pt.trace.json", trace))
    assert set(profile.events.stream.tolist()) == {7, 20}
    assert (profile.events.launch_ps != UNKNOWN).all()
    assert profile.events.of_kind(TaskKind.COLLECTIVE).sum() == 1


def test_the_public_trace_of_deepseek_exposes_its_exchanges(shared: Path) -> None:
    """The kernels of DeepEP run beside computes, but for 4.19 ms."""
    profile = read_profile(shared / "reference/profiles/kineto/deepseek_train.json.gz")
    (share,) = rank_shares(pipeline_waits(profile), [1])
    assert share.communication_ps == pytest.approx(113e9, rel=0.01)
    assert share.exposed_ps == pytest.approx(4.19e9, abs=0.1e9)


def ahead_of_the_device(steps: int, *, marks: bool) -> list[Raw]:
    """A host that launches each step of 100 ms, and copies its batch, 60 ms before it runs."""
    events: list[Raw] = []
    for step in range(steps):
        at = 100_000.0 * step
        if marks:
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 5}"}
                | {"tid": 1, "ts": at, "dur": 1e5}
            )
        for each in (
            kernel("copy", 25, at + 80, 1e3) | {"cat": "gpu_memcpy"},
            kernel("forward", 7, at + 6e4, 6e4),
            kernel("backward", 7, at + 12e4, 4e4),
        ):
            events += [each, launch(each, each["ts"] - at - 50)]
    return events


@pytest.mark.parametrize(("marks", "said"), [(True, "per step"), (False, "in the recording")])
def test_steps_that_overlap_on_the_device_are_cut_there(
    marks: bool, said: str, tmp_path: Path, run: Run
) -> None:
    """A step is from one begin of its compute to the next: the copy ahead of it is no idle time."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": ahead_of_the_device(4, marks=marks)}))
    profile = read_profile(path)
    recording = int(profile.events.end_ps.max() - profile.events.start_ps.min())
    assert int(profile.step_times_ps().sum()) <= recording
    if marks:
        assert profile.step_times_ps().tolist() == [100 * 10**9] * 4
        assert improve_profile(profile).changes == ()
    _, out, _ = run("inspect", path)
    assert said in out.splitlines()[0]
