"""Exports of Nsight Systems: devices as ranks, joined by their NCCL kernels."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stepsim.base.errors import TraceError
from stepsim.explain.shares import device_shares
from stepsim.files.traces.forms import is_profile, read_profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.run.spans import UNKNOWN, TaskKind

NAMES = ("gemm", "ncclDevKernel_AllReduce")
KERNELS = (
    # process, device, stream, correlation, start and end in ns, name
    (1 << 24, 0, 7, 10, 1_000, 2_000, 0),
    (1 << 24, 0, 9, 11, 2_000, 5_000, 1),
    (1 << 24, 1, 7, 12, 1_000, 4_000, 0),
    (1 << 24, 1, 9, 13, 4_000, 5_000, 1),
)


def export(path: Path, kernels: tuple[tuple[object, ...], ...] = KERNELS) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
        common = "globalPid, deviceId, streamId, correlationId, start, end"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({common}, shortName)")
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", kernels
        )
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (globalTid, correlationId, start)"
        )
        database.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({(1 << 24) + 77}, 11, 1500)"
        )
    return path


def change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


def test_devices_meet_in_their_nccl_kernels(tmp_path: Path) -> None:
    path = export(tmp_path / "a step%20.sqlite")
    assert is_profile(path)
    profile = read_profile(path)
    assert [each.rank for each in profile.ranks] == [0, 1]
    events = profile.events
    met = events.of_kind(TaskKind.COLLECTIVE)
    assert len(set(events.meeting[met].tolist())) == 1
    assert events.launch_ps[met].tolist() == [500_000, UNKNOWN]
    waits = pipeline_waits(profile)
    assert waits.own_ps[met].tolist() == [1_000_000, 1_000_000], "rank 0 waited for 2 us"
    shorter = np.where(profile.named("gemm"), 1_000_000, waits.own_ps)
    assert waits.steps_ps(shorter, waits.delay_ps).tolist() == [2_000_000]


def test_nvtx_ranges_are_steps(tmp_path: Path) -> None:
    """What was launched inside of a range belongs to it; other ranges are no steps."""
    path = export(tmp_path / "steps.sqlite")
    process = 1 << 24
    ranges = (
        f"({process + 77}, 900, 1900, 'train_step 3', NULL), ({process + 78}, 950, 1800, NULL, 5), "
        f"({process + 77}, 1900, 6000, 'iteration: 4', NULL), "
        f"({process + 77}, 100, 9000, 'epoch 1', NULL), ({2 * process}, 0, 9000, 'step 9', NULL)"
    )
    change(
        path,
        "CREATE TABLE NVTX_EVENTS (globalTid, start, end, text, textId)",
        "INSERT INTO StringIds VALUES (5, 'Step_3')",
        f"INSERT INTO NVTX_EVENTS VALUES {ranges}",
    )
    profile = read_profile(path)
    assert profile.steps == (3, 4)
    events = profile.events
    steps = [profile.steps[place] for place in events.step.tolist()]
    assert steps == [3, 3, 3, 4], "the second kernel of device 0 was launched at 1.5 us"
    change(path, "DELETE FROM NVTX_EVENTS WHERE text LIKE 'iter%'")
    assert (
        "1 operations launched outside of the steps are left out" in read_profile(path).warnings[0]
    )
    change(path, "UPDATE NVTX_EVENTS SET start = 90000, end = 90001")
    with pytest.raises(TraceError, match="no kernel was launched inside of the recorded steps"):
        read_profile(path)


def test_what_is_no_export_is_one_line(tmp_path: Path) -> None:
    path = change(tmp_path / "x.sqlite", "CREATE TABLE t (a)")
    with pytest.raises(TraceError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        read_profile(path)
    with pytest.raises(TraceError, match="no kernel in the profile"):
        read_profile(export(path, ()))
    bad = ((1, 0, 7, 10, "soon", 2_000, 0),)
    with pytest.raises(TraceError, match="a row of KERNEL is"):
        read_profile(export(path, bad))
    with pytest.raises(TraceError, match="ends before it starts"):
        read_profile(export(path, ((1, 0, 7, 10, 9_000, 2_000, 0),)))
    with pytest.raises(TraceError, match="a time of device 0 is too large"):
        read_profile(export(path, (*KERNELS[:1], (1 << 24, 0, 7, 10, 1, (1 << 62), 0))))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(TraceError, match="not an export of Nsight Systems"):
        read_profile(path)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            (
                "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
                f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS} i AS globalPid, 0 AS "
                "deviceId, 0 AS streamId, 0 AS correlationId, i AS start, i AS end, 0 AS shortName "
                "FROM n",
            ),
            "no table CUPTI_ACTIVITY_KIND_KERNEL",
        ),
        (
            (
                "DROP TABLE StringIds",
                f"CREATE VIEW StringIds AS {ENDLESS} 0 AS id, 'x' AS value FROM n",
            ),
            "no table StringIds",
        ),
    ],
)
def test_hostile_exports_are_one_line(
    statements: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    path = change(export(tmp_path / "a.sqlite"), *statements)
    with pytest.raises(TraceError, match=said) as error:
        read_profile(path)
    assert len(str(error.value)) < 1000


def test_names_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    for old in (b"KIND_RUNTIME", b"gemm"):
        path.write_bytes(export(path).read_bytes().replace(old, b"\xff" * len(old)))
        with pytest.raises(TraceError, match="not an export of Nsight Systems"):
            read_profile(path)


def test_an_endless_view_of_launches_is_not_read(tmp_path: Path) -> None:
    path = change(
        export(tmp_path / "a.sqlite"),
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS {ENDLESS} 1 AS globalTid, 2 AS "
        "correlationId, i AS start FROM n",
    )
    assert (read_profile(path).events.launch_ps == UNKNOWN).all()


def test_two_devices_of_a_real_program(shared: Path) -> None:
    """33 NCCL kernels on each of two devices, all joined; 85 and 86 % of the time they compute."""
    profile = read_profile(shared / "reference/profiles/nsys/mfu_2gpu_before.sqlite")
    met = profile.events.meeting[profile.events.meeting != UNKNOWN]
    assert np.unique(met, return_counts=True)[1].tolist() == [2] * 33
    waits = pipeline_waits(profile, posted=True)
    replayed = waits.steps_ps(waits.own_ps, waits.delay_ps)
    assert replayed == pytest.approx(profile.step_times_ps(), rel=1e-3)
    found = device_shares(profile)
    assert [each.compute_ps / each.span_ps for each in found] == pytest.approx(
        [0.846, 0.857], abs=0.001
    )
    assert [each.other_ps / each.span_ps for each in found] == pytest.approx(
        [0.067, 0.037], abs=0.001
    )


def test_whole_names_tell_libraries_and_copies_their_ends(tmp_path: Path) -> None:
    """The short name of DeepEP's kernel is `dispatch`; a copy to another device communicates."""
    whole = "void deep_ep::internode_ll::dispatch<true, 7168>(void*)"
    copied = f"({1 << 24}, 0, 5, 20, 1000, 1500, 8, 8), ({1 << 24}, 0, 5, 21, 1000, 1500, 8, 10)"
    path = change(
        export(tmp_path / "ep.sqlite"),
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD demangledName INTEGER",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = shortName",
        f"INSERT INTO StringIds VALUES (7, 'dispatch'), (8, '{whole}')",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 7, demangledName = 8 "
        "WHERE shortName = 1",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY "
        "(globalPid, deviceId, streamId, correlationId, start, end, bytes, copyKind)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES {copied}",
    )
    profile = read_profile(path)
    assert profile.names == ("deep_ep dispatch", "gemm", "memcpy")
    events = profile.events
    assert len(set(events.meeting[events.of_kind(TaskKind.COLLECTIVE)].tolist())) == 1
    assert events.of_kind(TaskKind.COPY).sum() == events.of_kind(TaskKind.SEND).sum() == 1
