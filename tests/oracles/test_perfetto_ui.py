"""Traces opened by Perfetto itself: it finds what was written, and has nothing to complain of."""

from collections import Counter
from pathlib import Path
from typing import Any

import perfetto_ui
import pytest
from helpers import row, uniform_workload
from trace_files import ReadProcess, read_trace

import stepsim
from stepsim.base.structs import replace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(perfetto_ui.missing()), reason=f"not installed: {perfetto_ui.missing()}"
    ),
]

JOBS: dict[str, dict[str, Any]] = {
    "1f1b": {},
    "interleaved": {"schedule": "interleaved:2", "dp_overlap": True},
    "contention": {"schedule": "interleaved:2", "dp_overlap": True, "contention": "fair"},
    "eager": {"schedule": "zb-h1", "p2p": "eager"},
    "dualpipe": {"schedule": "dualpipe-v", "slow": "40:1.5"},
}
COMPLAINTS = "select name from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
    select process.name, thread.name, slice.name, slice.category, slice.ts, slice.ts + slice.dur,
    depth from slice join thread_track on slice.track_id = thread_track.id
    join thread using (utid) join process using (upid)
"""
ARROWS = """
    select a.name, b.name, a.category, b.category, a.ts, b.ts
    from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
"""
COUNTERS = """
    select process.name, process_counter_track.name, count(*), max(value)
    from counter join process_counter_track on process_counter_track.id = counter.track_id
    join process using (upid) group by 1, 2
"""
FACTS = """
    select args.key, args.display_value, count(*) from slice join args using (arg_set_id)
    where key in ('args.algorithm', 'args.size_bytes', 'args.waited_for') group by 1, 2
"""


def ns(time_ps: int) -> int:
    """As Perfetto keeps time."""
    return (time_ps + 500) // 1000


@pytest.mark.parametrize("job", JOBS)
def test_perfetto_reads_what_was_written(job: str, workloads: Path, tmp_path: Path) -> None:
    options = {"microbatches": 8} | JOBS[job]
    result = stepsim.simulate(workloads / "moe_128.txt", "hgx-h100", **options)
    target = tmp_path / "step.json.gz"
    result.write_trace(target)
    plain = tmp_path / "step.json"
    result.write_trace(plain)
    processes = read_trace(plain.read_text())
    with perfetto_ui.opened(target) as ui:
        assert ui.query(COMPLAINTS) == []
        check_slices(ui, processes)
        check_arrows(ui, processes)
        check_counters(ui, processes)
        check_facts(ui, processes)


def slices_of(processes: list[ReadProcess]) -> Any:
    return (
        (process.name, name, each)
        for process in processes
        for name, slices in process.threads.items()
        for each in slices
    )


def arrows_of(processes: list[ReadProcess]) -> Counter[tuple[str, str]]:
    """Names at both ends of every arrow."""
    ends: dict[int, dict[str, str]] = {}
    for _, _, each in slices_of(processes):
        for phase, number in each.arrows:
            ends.setdefault(number, {})[phase] = each.name
    return Counter((end["s"], end["f"]) for end in ends.values())


def check_slices(ui: perfetto_ui.PerfettoUI, processes: list[ReadProcess]) -> None:
    """The same slices, to the ns, none inside another."""
    rows = ui.query(SLICES)
    assert {row[6] for row in rows} == {0}
    written = [(p, t, s.name, s.category, s.start, s.end) for p, t, s in slices_of(processes)]
    assert len(rows) == len(written)
    told = sorted((*row[:4], row[4], row[5]) for row in rows)
    for one, other in zip(told, sorted(written), strict=True):
        assert list(one[:4]) == list(other[:4])
        assert abs(one[4] - ns(other[4])) <= 1
        assert abs(one[5] - ns(other[5])) <= 1


def check_arrows(ui: perfetto_ui.PerfettoUI, processes: list[ReadProcess]) -> None:
    """Every message is one flow, from its send to its receipt."""
    rows = ui.query(ARROWS)
    assert {(row[2], row[3]) for row in rows} == {("send", "recv")}
    assert all(row[4] == row[5] for row in rows)
    assert Counter((row[0], row[1]) for row in rows) == arrows_of(processes)


def check_counters(ui: perfetto_ui.PerfettoUI, processes: list[ReadProcess]) -> None:
    """The same counters with as many values and the same highest one."""
    written = {
        (process.name, f"{name} {series}"): [row[series] for _, row in values]
        for process in processes
        for name, values in process.counters.items()
        for series in values[0][1]
    }
    rows = {(row[0], row[1]): (row[2], row[3]) for row in ui.query(COUNTERS)}
    assert rows.keys() == written.keys()
    for name, values in written.items():
        assert rows[name][0] == len(values)
        assert rows[name][1] == pytest.approx(max(values))


def check_facts(ui: perfetto_ui.PerfettoUI, processes: list[ReadProcess]) -> None:
    """Facts about slices, fact by fact."""
    written = Counter(
        (f"args.{key}", str(each.args[key]))
        for _, _, each in slices_of(processes)
        for key in ("algorithm", "size_bytes", "waited_for")
        if key in each.args
    )
    assert {(row[0], row[1]): row[2] for row in ui.query(FACTS)} == written


def test_catapult_reads_what_was_written(workloads: Path, tmp_path: Path) -> None:
    target = tmp_path / "step.json"
    stepsim.simulate(workloads / "moe_128.txt", "hgx-h100", microbatches=8).write_trace(target)
    processes = read_trace(target.read_text())
    found = perfetto_ui.read_by_catapult(target)
    assert found["warnings"] == []
    assert found["names"] == [process.name for process in processes]
    assert all(coloured for _, _, _, coloured in found["slices"])
    read = [(name, round(a * 1e9), round(b * 1e9)) for name, a, b, _ in found["slices"]]
    assert sorted(read) == sorted((s.name, s.start, s.end) for _, _, s in slices_of(processes))
    assert Counter(map(tuple, found["flows"])) == arrows_of(processes)


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    name = "</script><svg/onload=document.title='mine'>\u5c42\u00b5"
    workload = uniform_workload(forward=5, backward=5, pp=1, microbatches=1)
    layer = (replace(row(5, 5), name=name),)
    hostile = replace(
        workload,
        source=name,
        microbatches=(replace(workload.microbatches[0], layers=(layer,)),),
    )
    target = tmp_path / "step.json"
    stepsim.simulate(hostile, "hgx-h100").write_trace(target)
    with perfetto_ui.opened(target) as ui:
        assert [row for (row,) in ui.query("select name from slice")].count(name) == 3
        ui.unfold("rank 0")
        ui.select(name)
        assert "Perfetto" in ui.driver.title
        assert not ui.driver.find_elements("css selector", "svg[onload]")
