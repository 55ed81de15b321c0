"""Running and storing sweeps: resuming, failures, lost workers, databases of others."""

import sqlite3
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweeps import (
    AXES,
    ROOT,
    SMALL,
    Alone,
    Deadly,
    Quick,
    Wrong,
    WrongLater,
    exported,
    grouped,
    rows_of,
    study,
)

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import OutputError, SweepError
from stepsim.base.structs import replace
from stepsim.explore.sweep import Study, SweepProgress, open_for_reading, run_sweep
from stepsim.files.load import read_model
from stepsim.files.sweep_table import SweepTable, progress_of
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.topology.nested import with_values
from stepsim.workload.scaling import ComputeScale


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The table of the small sweep that ran without a stop."""
    run_quick(tmp_path / "whole.sqlite")
    return exported(tmp_path / "whole.sqlite")


def run_quick(database: Path, asked: Study | None = None, **how: Any) -> SweepProgress:
    return run_sweep(grouped(Quick, asked), database, jobs=1, **how)


def test_every_scenario_is_what_simulate_says(database: Path) -> None:
    axes = ("microbatches=2,4", "fabric.bandwidth=100,400 Gbps", "compute_scale=0.5,1")
    asked = study(*axes, "host_overhead=0,5 us", breakdown=True, npus=32, pp=2)
    assert run_sweep(asked, database, jobs=1) == SweepProgress(size=16, done=16, failed=0)
    for found in rows_of(database):
        topology = stepsim.load_topology("hgx-h100")
        factor = found["compute_scale"]
        report = stepsim.simulate(
            SMALL,
            with_values(topology, {"fabric.bandwidth": found["fabric.bandwidth_bytes_per_s"]}),
            npus=32,
            pp=2,
            microbatches=found["microbatches"],
            compute_scale=ComputeScale(forward=factor, input_grad=factor, weight_grad=factor),
            host_overhead=f"{found['host_overhead_ps']} ps",
        ).report
        assert found["step_time_ps"] == report.step_time_ps
        assert found["pipeline_time_ps"] == report.pipeline_time_ps
        assert found["bubble_fraction"] == report.bubble_fraction
        total = sum(link.links * (link.bandwidth_bytes_per_s or 0.0) for link in report.links)
        assert found["total_bandwidth_bytes_per_s"] == pytest.approx(total)
        for part, time in report.breakdown_ps.items():
            assert found[f"{part}_ps"] == time
        assert found["error"] is None


@pytest.mark.parametrize(
    ("axes", "options"),
    [
        (("algorithm=ring,all_reduce=nvls,tree",), {"microbatches": 4}),
        (
            ("schedule=dualpipe-v,zb-v,interleaved:2,dualpipe",),
            {"slow": "3:1.3", "microbatches": 8},
        ),
        (("microbatches=4,8", "compute_scale=0.5,1"), {"schedule": "dualpipe-v"}),
        (
            ("rank_order=tp-dp-pp,tp-pp-dp", "host_overhead=0,7 us"),
            {"slow": "0-7:1.1", "microbatches": 4},
        ),
        (("expert_load=skew:1,skew:1.5", "dp_overlap=on,off"), {"microbatches": 2}),
        (("compute_scale=1e-9,1",), {"dp_overlap": True, "microbatches": 8}),
        (("contention=none,fair",), {"slow": "3:1.3", "microbatches": 4}),
        (("compute_scale=0.5,1", "contention=fair"), {"dp_overlap": True, "microbatches": 8}),
    ],
    ids=lambda each: each[0].partition("=")[0] if isinstance(each, tuple) else "",
)
def test_batched_scenarios_are_the_simulated_ones(
    tmp_path: Path, axes: tuple[str, ...], options: dict[str, Any]
) -> None:
    links = ("fabric.bandwidth=100,inf Gbps", "nvlink.latency=0,3 us")
    asked = study(*links, *axes, breakdown=True, npus=32, pp=4, **options)
    run_sweep(asked, tmp_path / "batched.sqlite", jobs=1)
    run_sweep(grouped(Alone, asked), tmp_path / "one.sqlite", jobs=1)
    assert exported(tmp_path / "batched.sqlite") == exported(tmp_path / "one.sqlite")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt2", {"tp": 2}),
        ("llama-3.1-8b", {"tp": 8, "zero": 3}),
        ("mixtral-8x7b", {"ep": 8}),
        ("mixtral-8x7b", {"ep": 8, "framework": "torch-fsdp-eager"}),
        ("mixtral-8x7b", {"ep": 8, "dispatch": "deepep"}),
        ("qwen3-30b-a3b", {"ep": 16, "dispatch": "hybridep", "expert_overlap": True}),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(map(str, each.values())),
)
def test_models_on_other_networks_are_the_simulated_ones(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Some of a model's rows are made with the numbers of its network."""
    shared: dict[str, Any] = {"device": "h100", "framework": "megatron-core", "npus": 16}
    options = shared | {"global_batch": 32} | options
    axes = (
        "fabric.bandwidth=100,400 Gbps",
        "nvlink.bandwidth=100,450 GB/s",
        "nvlink.latency=0,3us",
    )
    asked = replace(study(*axes, **options), workload=read_model(model))
    run_sweep(asked, tmp_path / "swept.sqlite", jobs=1)
    for found in rows_of(tmp_path / "swept.sqlite"):
        values = {
            "fabric.bandwidth": found["fabric.bandwidth_bytes_per_s"],
            "nvlink.bandwidth": found["nvlink.bandwidth_bytes_per_s"],
            "nvlink.latency": found["nvlink.latency_ps"],
        }
        topology = with_values(stepsim.load_topology("hgx-h100"), values)
        report = stepsim.simulate(model, topology, **options).report
        assert found["step_time_ps"] == report.step_time_ps


def test_failures_are_stored_with_their_reason_and_stop_nothing(
    database: Path, tmp_path: Path
) -> None:
    asked = study("microbatches=1,2,4", "schedule=interleaved:2,zb-h1,1f1b", npus=32, pp=2)
    progress = run_sweep(asked, database, jobs=1)
    assert progress.done == 9
    with open_for_reading(database) as store:
        table = SweepTable(store=store)
        failure = table.first_error()
        assert failure
        assert table.settings(failure[0]) == {"microbatches": "1", "schedule": "interleaved:2"}
        assert "microbatches is 1" in failure[1]
        assert progress.failed == sum(row.failed for row in table.by_value(table.axes[0]))
    broken = tmp_path / "b.sqlite"
    assert run_sweep(grouped(partial(Quick, failing=4)), broken, jobs=1).failed == 10
    assert exported(broken).decode().count("microbatches is 4: refused") == 10


def test_models_on_links_shared_in_time_are_the_simulated_ones(tmp_path: Path) -> None:
    """Other bandwidths take other algorithms; some transfers meet."""
    options: dict[str, Any] = {"device": "h100", "framework": "megatron-core", "npus": 16}
    options |= {"contention": "fair", "global_batch": 32, "pp": 2}
    asked = replace(study("fabric.bandwidth=1..800 Gbps:6", **options), workload=read_model("gpt2"))
    run_sweep(asked, tmp_path / "batched.sqlite", jobs=1)
    run_sweep(grouped(Alone, asked), tmp_path / "one.sqlite", jobs=1)
    assert exported(tmp_path / "batched.sqlite") == exported(tmp_path / "one.sqlite")


@pytest.mark.parametrize("sharing", ["siblings", "fair"])
def test_what_is_held_keeps_no_sweep_from_running(sharing: str, database: Path) -> None:
    options: dict[str, Any] = {"contention": sharing, "activation_size": "1 MiB"}
    asked = study("fabric.bandwidth=100..400 Gbps:4", npus=32, pp=2, **options)
    assert run_sweep(asked, database, jobs=1) == SweepProgress(size=4, done=4, failed=0)


def test_a_scenario_that_fails_stops_none_of_those_evaluated_with_it(database: Path) -> None:
    asked = study("fabric.bandwidth=1e-6,100,200,400 Gbps", npus=32, pp=2)
    assert run_sweep(asked, database, jobs=1) == SweepProgress(size=4, done=4, failed=1)
    errors = [row["error"] for row in rows_of(database)]
    assert "takes too long" in errors[0]
    assert errors[1:] == [None] * 3


def test_values_of_an_axis_are_summed_up_over_all_others(database: Path) -> None:
    """The least of those that fit, the mean of all that ran."""
    assert run_sweep(grouped(partial(Quick, failing=4)), database, jobs=1).failed == 10
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE result SET fits = id % 4 > 0 WHERE error IS NULL")
    with open_for_reading(database) as store:
        table = SweepTable(store=store)
        found = {axis: table.by_value(axis) for axis in table.axes}
    for axis, rows in found.items():
        here = [axis.positions(np.arange(30)) == row.position for row in rows]
        for row, which in zip(rows, here, strict=True):
            mine = [each for each, is_here in zip(rows_of(database), which, strict=True) if is_here]
            ran = [each["step_time_ps"] for each in mine if each["step_time_ps"] is not None]
            fit = [each["step_time_ps"] for each in mine if each["fits"]]
            assert (row.scenarios, row.failed) == (len(mine), len(mine) - len(ran))
            assert row.least_ps == min(fit, default=None)
            assert row.mean_ps == (pytest.approx(sum(ran) / len(ran)) if ran else None)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("group", [Wrong, WrongLater], ids=["prepare", "evaluate"])
def test_a_fault_of_our_own_ends_the_sweep_and_what_is_stored_is_kept(
    database: Path, whole: bytes, jobs: int, group: type[Quick]
) -> None:
    with pytest.raises(ZeroDivisionError, match="of our own making") as caught:
        run_sweep(grouped(group), database, jobs=jobs)
    shown = "".join(traceback.format_exception(caught.value))
    assert "sweeps.py" in shown, "the traceback leads to the fault, in a worker too"
    with open_for_reading(database) as store:
        kept = progress_of(store)
    assert kept.failed == 0
    assert jobs == 2 or kept.done == 10
    seen: list[SweepProgress] = []
    run_quick(database, resume=True, progress=seen.append)
    assert seen[0] == kept
    assert exported(database) == whole


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stopped_sweep_is_continued_and_nothing_is_computed_twice(
    database: Path, whole: bytes, tmp_path: Path, jobs: int
) -> None:
    asked = grouped(partial(Quick, folder=str(tmp_path)))
    seen: list[int] = []

    def stop_later(progress: SweepProgress) -> None:
        seen.append(progress.done)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(asked, database, jobs=jobs, progress=stop_later)
    with open_for_reading(database) as store:
        assert progress_of(store).done == seen[-1] < 30
    if jobs == 2:
        (tmp_path / "log").unlink()
    done = 30 - seen[-1]
    assert run_sweep(asked, database, resume=True, jobs=jobs).done == 30
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == len(set(lines)) == (30 if jobs == 1 else done)
    assert exported(database) == whole
    (tmp_path / "stop").touch()
    assert run_sweep(asked, database, resume=True, jobs=jobs).done == 30


def test_a_killed_worker_loses_nothing(database: Path, whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    progress = run_sweep(grouped(partial(Quick, folder=str(tmp_path))), database, jobs=2)
    assert not (tmp_path / "kill").exists()
    assert progress == SweepProgress(size=30, done=30, failed=0)
    assert exported(database) == whole


def test_workers_that_always_die_end_the_sweep_with_the_scenario_named(database: Path) -> None:
    with pytest.raises(SweepError, match=r"workers were lost 3 times .* fabric.bandwidth=100 Gbps"):
        run_sweep(grouped(Deadly), database, jobs=2)


def test_results_do_not_depend_on_jobs_or_chunks(tmp_path: Path) -> None:
    tables = set()
    for chunk, jobs in ((1, 1), (3, 1), (100, 1), (2, 2)):
        database = tmp_path / f"{chunk}-{jobs}.sqlite"
        run_sweep(grouped(partial(Quick, at_once=chunk)), database, jobs=jobs)
        tables.add(exported(database))
    assert len(tables) == 1


def test_parquet_holds_the_table_of_the_csv(database: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    run_sweep(grouped(partial(Quick, failing=8)), database, jobs=1)
    exported(database, ".parquet")
    table = parquet.read_table(database.with_suffix(".parquet"))
    lines = exported(database).decode().splitlines()
    assert table.column_names == lines[0].split(",")
    assert table.num_rows == len(lines) - 1 == 30
    assert table.column("error").null_count == 20
    shown = ["" if v is None else str(v) for v in table.slice(0, 1).to_pylist()[0].values()]
    assert ",".join(shown) == lines[1]


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepsim.files.sweep_document import check_export_path

    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(OutputError, match=r"pip install 'stepsim\[parquet\]'"):
        check_export_path(tmp_path / "a.parquet")
    with pytest.raises(OutputError, match=r"cannot write \.xlsx: expected \.csv, \.parquet"):
        check_export_path(tmp_path / "a.xlsx")


def test_a_database_is_never_overwritten_and_belongs_to_one_sweep(database: Path) -> None:
    run_quick(database)
    before = database.read_bytes()
    cases = [
        (study(), False, "exists already: --resume (resume=True) continues the same sweep"),
        (study("microbatches=2,4"), True, "axes is fabric.bandwidth, microbatches, compute_scale"),
        (
            study(AXES[0], "microbatches=2,4,9", AXES[2]),
            True,
            "axis microbatches is 3 values, 2 to",
        ),
        (study(contention="fair"), True, "option contention is absent there, fair here"),
        (study(breakdown=True), True, "breakdown is off there, on here"),
    ]
    for asked, resume, message in cases:
        with pytest.raises(SweepError) as caught:
            run_sweep(asked, database, resume=resume, jobs=1)
        assert message in str(caught.value)
        assert database.read_bytes() == before


def test_another_topology_or_workload_is_another_sweep(database: Path) -> None:
    run_quick(database)
    changed = replace(study(), topology=with_values(study().topology, {"nvlink.latency": 1}))
    with pytest.raises(SweepError, match="holds another sweep: topology is hgx-h100"):
        run_sweep(changed, database, resume=True)
    changed = replace(study(), workload=stepsim.load_workload(ROOT / "workloads" / "moe_128.txt"))
    with pytest.raises(SweepError, match=r"holds another sweep: workload is gpt_tp4.txt .* there"):
        run_sweep(changed, database, resume=True)


def test_tables_that_differ_in_one_time_are_two_sweeps(database: Path) -> None:
    sizes = range(1, 3001)
    tables = []
    for time in (5_000, 5_001):
        curve = MeasuredCurve(
            machine="box",
            source="run",
            kind=CollectiveKind.ALL_REDUCE,
            ranks=4,
            nodes=1,
            sizes=tuple(size << 10 for size in sizes),
            times_ps=tuple(time if size == 1500 else 10_000 for size in sizes),
        )
        tables.append(CommTable(source="run", curves=(curve,)))
    first, second = (study(comm_table=table) for table in tables)
    run_quick(database, first)
    with pytest.raises(SweepError, match="holds another sweep: option comm_table is run "):
        run_quick(database, second, resume=True)
    assert run_quick(database, first, resume=True).done == 30


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()


def newer(path: Path) -> None:
    run_quick(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def damaged(path: Path) -> None:
    run_quick(path)
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = bytes(len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("a text\n" * 99), "not a database of a sweep, or damaged"),
        (foreign, "a database, but not of a sweep"),
        (newer, "schema version 99: expected 7"),
        (damaged, "damaged"),
    ],
)
def test_other_files_are_refused_and_kept(
    database: Path, make: Callable[[Path], object], message: str
) -> None:
    make(database)
    before = database.read_bytes()
    with pytest.raises(SweepError, match=message):
        run_quick(database, resume=True)
    with pytest.raises(SweepError):
        run_quick(database)
    assert database.read_bytes() == before


def test_an_empty_file_and_a_missing_one_are_begun(database: Path, tmp_path: Path) -> None:
    database.touch()
    assert run_quick(database).done == 30
    assert list(tmp_path.iterdir()) == [database]  # one file, no journal beside it
    assert run_quick(tmp_path / "b.sqlite", resume=True).done == 30


def test_a_database_is_written_by_one_process_and_read_by_many(database: Path) -> None:
    counts: list[int] = []

    def look(progress: SweepProgress) -> None:
        with open_for_reading(database) as reader:
            counts.append(progress_of(reader).done)
        with pytest.raises(SweepError, match="another process is writing it"):
            run_quick(database, resume=True)
        assert counts[-1] == progress.done

    run_quick(database, progress=look)
    assert counts == sorted(set(counts))
    assert counts[-1] == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "slurm"}, "executor is 'slurm': expected one of local, dask"),
        ({"jobs": 0}, "jobs is 0: expected 1 to 1024"),
        ({"executor": "dask", "scheduler": "x", "jobs": 2}, "leave it out"),
    ],
)
def test_contradicting_options_are_refused_before_a_database_is_made(
    database: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        run_sweep(study(), database, **options)
    assert not database.exists()


def test_the_view_of_the_database_names_the_axes(database: Path) -> None:
    run_quick(database)
    connection = sqlite3.connect(database)
    rows = connection.execute(
        'SELECT "fabric.bandwidth", microbatches, step_time_ps FROM scenario '
        "WHERE compute_scale = '1' ORDER BY step_time_ps LIMIT 1"
    ).fetchall()
    connection.close()
    assert rows == [("800 Gbps", "2", 20_000_000_000)]
