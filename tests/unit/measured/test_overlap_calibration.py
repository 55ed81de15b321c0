"""Kernels alone and beside communication in profiles, and what communications took of their GPU."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run

import stepsim
from stepsim.base.errors import CalibrationError, StepsimError
from stepsim.base.structs import replace
from stepsim.explain.changes.computes import compute_changes
from stepsim.explain.changes.made import ProfileChange
from stepsim.files.accelerators import read_device
from stepsim.files.beside_csv import read_beside_rows
from stepsim.files.calibrations import model_calibration_toml, read_model_calibration
from stepsim.files.traces.kineto import read_kineto
from stepsim.measured.kernels_beside import (
    BesideRow,
    alone_times_ps,
    beside_rows,
)
from stepsim.measured.profile.kernel_classes import family_of
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.runs.overlap import calibrate_overlap_rows, overlap_rows
from stepsim.workload.overlap import (
    CommDemand,
    CommEngine,
    GpuLimits,
    KernelDemand,
    KernelKind,
    beside_s,
)

GPU = GpuLimits.of(read_device("h100"))
TAKEN = CommDemand(sms=24, bytes_per_s=1.2e12, delay_ps=4_000_000)
STREAM = "void at::native::vectorized_elementwise_kernel<4, float>"
GEMM = "nvjet_hsh_128x256_64x4"
KERNELS = (
    *((GEMM, blocks, 384, 168, 80.0 + blocks) for blocks in (132, 400, 1056, 2640)),
    *((STREAM, blocks, 128, 32, 12.0 + blocks / 100) for blocks in (1000, 4096, 9000, 20000)),
    *((STREAM, blocks, 128, 32, 3.0 + blocks / 100) for blocks in (50, 100, 200)),
)
"""Name, blocks, threads, registers and time alone in us."""


def demand(name: str, blocks: int, threads: int, registers: int) -> KernelDemand:
    kind = KernelKind.PRODUCT if name == GEMM else KernelKind.STREAM
    return KernelDemand.launched(kind, blocks, threads, GPU, registers=registers)


def kernel(name: str, at: float, took: float, stream: int, **arguments: Any) -> dict[str, Any]:
    span = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at}
    return span | {"dur": took, "args": {"stream": stream, **arguments}}


def trace() -> dict[str, Any]:
    """Six rounds of all kernels, three of them beside an all-gather that takes `TAKEN`."""
    events, now = [], 1000.0
    for turn in range(6):
        begin = now
        for name, blocks, threads, registers, alone in KERNELS:
            own = demand(name, blocks, threads, registers)
            took = beside_s(alone * 1e-6, own, [TAKEN], GPU) * 1e6 if turn % 2 else alone
            launched: dict[str, Any] = {"grid": [blocks, 1, 1], "block": [threads, 1, 1]}
            launched |= {"registers per thread": registers}
            events.append(kernel(name, now, took, 7, **launched))
            now += took + 1.0
        if turn % 2:
            gather = {"Collective name": "all_gather", "grid": [24, 1, 1], "block": [544, 1, 1]}
            name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            events.append(kernel(name, begin - 1, now - begin + 1, 20, **gather))
        now += 50.0
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(trace()))
    return path


def test_a_trace_of_known_demands_gives_them_back(recorded: Path) -> None:
    rows, _ = overlap_rows([recorded])
    assert len(rows) == len(KERNELS)
    calibration, fits = calibrate_overlap_rows(rows, None, ["rank0.json"])
    [(device, fit)] = fits
    assert (device.name, fit.engine) == ("H100", CommEngine.RING)
    assert (fit.rows, fit.short_rows) == (8, 3)
    assert fit.traits.sms == TAKEN.sms
    assert fit.traits.bytes_per_s == pytest.approx(TAKEN.bytes_per_s, rel=0.01)
    assert fit.traits.delay_us == pytest.approx(4.0, abs=0.02)
    assert fit.error < 0.001 < fit.usual_error < fit.no_slowdown_error
    assert calibration.traits_of(device) == {CommEngine.RING: fit.traits}


def test_executions_beside_other_kernels_are_left_out(tmp_path: Path) -> None:
    data = trace()
    data["traceEvents"].append(kernel(GEMM, 1000.0, 1e6, 9))
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CalibrationError, match="no kernel ran both alone and beside"):
        overlap_rows([path])


def test_the_command_writes_a_table_and_numbers_that_a_step_uses(
    recorded: Path, tmp_path: Path, run: Run
) -> None:
    table, numbers = tmp_path / "rows.csv", tmp_path / "h100.toml"
    words = ["calibrate", "overlap", recorded, "-o", numbers, "--csv", table, "-q"]
    code, printed, _ = run(*words)
    assert code == 0
    assert f"{len(KERNELS)} kernels ran alone and beside communication" in printed
    rows, _ = overlap_rows([recorded])
    again = read_beside_rows(table)
    assert [row.grid for row in again] == [row.grid for row in rows]
    assert [row.ratio for row in again] == pytest.approx([row.ratio for row in rows])
    assert run("calibrate", "overlap", table, "-q")[1] == printed
    calibration = read_model_calibration(numbers)
    assert model_calibration_toml(calibration) == numbers.read_text()
    steps = [step(calibration=known) for known in (None, calibration, doubled(calibration))]
    assert steps[0].report.step_time_ps != steps[1].report.step_time_ps
    assert steps[1].report.step_time_ps < steps[2].report.step_time_ps


def step(**options: Any) -> stepsim.Result:
    shape: dict[str, Any] = {"npus": 8, "global_batch": 16, "sequence": 4096, "overlap_cost": True}
    framework = "torch-fsdp-compiled"
    return stepsim.simulate("llama-3-8b", "hgx-h100", framework=framework, **shape, **options)


def doubled(calibration: Any) -> Any:
    [ring] = calibration.overlap
    traits = replace(ring.traits, bytes_per_s=2 * ring.traits.bytes_per_s)
    return replace(calibration, overlap=(replace(ring, traits=traits),))


def test_gpus_that_nobody_knows_are_refused_in_one_line(tmp_path: Path) -> None:
    data = trace()
    data["deviceProperties"] = [{"id": 0, "name": "NVIDIA L40S"}]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(data))
    with pytest.raises(StepsimError, match="GPU is 'NVIDIA L40S': expected one of"):
        calibrate_overlap_rows(overlap_rows([path])[0], None, [])
    assert calibrate_overlap_rows(overlap_rows([path])[0], "h100", [])[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alone_us": "0"}, "row 2: alone_us is '0': expected a time above 0"),
        ({"alone_us": "soon"}, "row 2: Expected `float`"),
        ({"grid": "1xx"}, ""),
    ],
)
def test_tables_that_say_nothing_are_refused(
    change: dict[str, str], message: str, tmp_path: Path
) -> None:
    row = {"class": "gemm", "kernel": "k", "comm_kind": "all_reduce", "comm_kernel": "nccl"}
    row |= {"alone_us": "12", "beside_us": "13"} | change
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    if message:
        with pytest.raises(CalibrationError, match=message):
            read_beside_rows(path)
    else:
        assert read_beside_rows(path)[0].grid == (1,)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>", "elementwise"),
        ("void splitKreduce_kernel<32, 16, int, float>", "reduce"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3>", "gemm"),
        ("nvjet_hsh_128x256_64x4", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64", "gemm"),
        ("flash_fwd_kernel", "attention"),
        ("void dpsk::grouped_gemm::cuda::utils::transpose<512>", "elementwise"),
        ("void layer_norm::ln_fwd_kernel<int>", "norm"),
        ("a_kernel_of_somebody", "other"),
    ],
)
def test_names_say_what_kernels_do(name: str, known: str) -> None:
    assert family_of(name) == known


@pytest.mark.parametrize(
    ("trace", "file", "least"),
    [
        ("param_dlrm_8ranks.tar.gz", "8 ranks", 1.0),
        ("hta_nccl_data.json.gz", "nccl_parser_config__nccl_data.json.gz", 0.75),
        ("deepseek_train.json.gz", "train.json", 0.8),
    ],
)
def test_rows_are_those_of_the_shared_table(
    shared: Path, trace: str, file: str, least: float
) -> None:
    """Most are equal to the nanosecond; the table's script tells a few kernels apart otherwise."""
    table = shared / "reference" / "overlap" / "from_traces.csv"
    profile = shared / "reference" / "profiles" / "kineto" / trace
    if not table.exists() or not profile.exists():
        pytest.skip("the tables of overlap are not here")
    with table.open() as text:
        places = [i for i, row in enumerate(csv.DictReader(text)) if row["file"] == file]
    every = read_beside_rows(table)
    known = {key(every[place]) for place in places}
    mined = {key(row) for row in beside_rows(read_kineto(profile))}
    assert len(mined & known) >= least * len(known)
    assert len(mined) <= 1.05 * len(known)


def key(row: BesideRow) -> tuple[Any, ...]:
    times = (row.alone_us, row.alone_p25_us, row.beside_us)
    launched = row.kernel, row.grid, row.block, row.comm_kind, row.comm_blocks
    return (*launched, row.n_alone, row.n_beside, row.is_clean, *(round(each, 1) for each in times))


def test_kernels_may_take_what_they_take_alone(recorded: Path) -> None:
    """The rounds beside communication become as long as those alone."""
    profile = read_kineto(recorded)
    alone = alone_times_ps(profile)
    beside = alone >= 0
    known: dict[str, set[int]] = {name: set() for name in profile.names}
    assert beside.sum() == 3 * len(KERNELS) - 1, "the last of all has no kernel after it"
    took = profile.events.duration_ps
    assert (alone[beside] < took[beside]).all()
    for place in beside.nonzero()[0].tolist():
        known[profile.names[profile.events.name[place]]].add(alone[place])
    assert sum(map(len, known.values())) == len(KERNELS)
    waits = pipeline_waits(profile)
    changed = {change.name: change for change in compute_changes(waits)}
    unslowed = changed["no-comm-sms"]
    assert isinstance(unslowed, ProfileChange)
    assert (unslowed.own_ps == np.where(beside, alone, waits.own_ps)).all()
