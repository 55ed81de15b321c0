"""What is done with a document that a reader accepts, and with a text that a parser takes.

A workload is simulated, a topology carries a collective, a result is compared, a sweep's database
is printed. Each function returns when the document is fine and raises StepsimError when it is
refused; anything else is a bug.
"""

import io
from collections.abc import Iterable
from functools import cache
from math import isfinite, lcm
from pathlib import Path
from zlib import crc32

import numpy as np
from fuzz import seeds
from helpers import answers_of, uniform_workload
from networks import load_between

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import StepsimError
from stepsim.documents.table import Shown
from stepsim.network.topology import Topology
from stepsim.workload.rows import Workload

MOST_RANKS = 256
"""Jobs that are simulated have at most as many ranks and, of each, microbatches times rows."""
MOST_ROWS = 400
MOST_LINKS = 4096


def finite(document: object) -> None:
    """Raise AssertionError where plain data holds a number that is none, or a negative time."""
    match document:
        case dict():
            for key, value in document.items():
                finite(value)
                if str(key).endswith("_ps") and isinstance(value, int | float):
                    assert value >= 0, f"{key} is {value}"
        case list() | tuple():
            for value in document:
                finite(value)
        case float():
            assert isfinite(document), f"a number is {document}"


def _chosen(path: Path, of: int) -> bool:
    """Whether this document is one of those that dear checks are made of."""
    return crc32(path.read_bytes()) % of == 0


def printed(path: Path, shown: Iterable[Shown]) -> None:
    """Print tables as in a terminal; they hold no number that is none, and no escapes."""
    from stepsim.show.terminal import Paper, print_shown

    text = io.StringIO()
    print_shown(Paper(text), shown)
    shown = text.getvalue()
    assert "nan" not in shown or b"nan" in path.read_bytes().lower(), shown
    assert "\x1b" not in shown, shown


@cache
def _network() -> Topology:
    return stepsim.load_topology("hgx-h100")


def check_workload(path: Path) -> None:
    workload = stepsim.load_workload(path)
    if _chosen(path, 6):
        _simulate(workload, path)


def _simulate(workload: Workload, path: Path) -> None:
    """One step of a job that is small enough."""
    from stepsim.parallel.inspection import inspect_workload
    from stepsim.views.inspection import workload_shown
    from stepsim.views.step import step_tables

    degrees = workload.degrees
    blocks = min(2, len(workload.microbatches))
    rows = sum(1 for block in workload.microbatches[:blocks] for _ in block.rows())
    unit = degrees["pp"] * lcm(degrees["tp"], degrees["ep"])
    if unit > MOST_RANKS or rows > MOST_ROWS:
        return
    npus = None if workload.npus and workload.npus <= MOST_RANKS else unit
    contention = "fair" if _chosen(path, 18) else "none"
    result = stepsim.simulate(
        workload, _network(), microbatches=blocks, contention=contention, npus=npus
    )
    document = result.document()
    finite_json(document.to_json())
    assert sum(document.breakdown_ps.values()) == document.step_time_ps
    printed(path, step_tables(result.report, len(result.ranks.actors)).values())
    printed(path, workload_shown(inspect_workload(workload, result.plan), ""))


def check_topology(path: Path) -> None:
    from stepsim.files.load import is_topology

    is_topology(str(path))
    topology = stepsim.load_topology(path)
    if _chosen(path, 3):
        _carry(topology, path)


def _carry(topology: Topology, path: Path) -> None:
    """A collective and a step on a topology that is small enough."""
    from stepsim.network.topology.inspection import inspect_topology
    from stepsim.views.inspection import topology_shown

    if topology.npus > MOST_LINKS or topology.npus < 2:
        return
    last = topology.npus - 1
    load_between(topology, 0, last)
    if topology.npus > MOST_RANKS:
        return
    if _chosen(path, 9):
        printed(path, topology_shown(inspect_topology(topology), topology.library))
    ranks = range(min(topology.npus, 16))
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
        seconds = stepsim.collective_time(topology, kind, 1 << 20, ranks)
        assert 0 <= seconds < float("inf"), f"{kind} takes {seconds} s"
    workload = uniform_workload(forward=10**9, backward=10**9, pp=2, microbatches=2)
    finite_json(stepsim.simulate(workload, topology, npus=2).to_json())


def check_schedule(path: Path) -> None:
    from stepsim.files.schedule_csv import format_schedule, parse_schedule, read_schedule

    schedule = read_schedule(path)
    again = parse_schedule(format_schedule(schedule), source="again", name=schedule.name)
    assert again == schedule, "what is written is another schedule"
    ranks, count = schedule.placement.ranks, schedule.microbatches
    if ranks > 16 or count > 64 or not _chosen(path, 3):
        return
    work = uniform_workload(forward=10**9, backward=10**9, pp=ranks, microbatches=count)
    layers = work.microbatches[0].layers * schedule.placement.chunks
    blocks = tuple(type(b)(embedding=(), layers=layers, head=()) for b in work.microbatches)
    work = Workload(source="made", degrees=work.degrees, npus=work.npus, microbatches=blocks)
    result = stepsim.simulate(work, "hgx-h100", npus=ranks, schedule=str(path))
    finite_json(result.document().to_json())


def check_sweep_file(path: Path) -> None:
    from stepsim.explore.sweep import Grid
    from stepsim.files.axes import make_axis
    from stepsim.files.sweep_toml import read_sweep

    content = read_sweep(path)
    Grid(axes=tuple(make_axis(name, str(text)) for name, text in content.axes.items()))


def check_calibration(path: Path) -> None:
    from stepsim.files.calibrations import read_calibration, write_calibration
    from stepsim.measured.calibration.applied import with_calibration
    from stepsim.options import StepOptions
    from stepsim.views.calibration import calibration_shown

    calibration = read_calibration(path)
    with_calibration(StepOptions(), calibration)
    write_calibration(calibration, path)
    written = path.read_bytes()
    write_calibration(read_calibration(path), path)
    assert path.read_bytes() == written, "what is written reads otherwise"
    printed(path, calibration_shown(calibration))
    if calibration.collectives:
        for curve in calibration.collectives.curves:
            curve.duration_ps(12345)


def check_step_table(path: Path) -> None:
    from stepsim.files.step_table import read_step_table

    for step in read_step_table(path):
        assert step.measured_ps >= 0, step


def check_expert_load(path: Path) -> None:
    from stepsim.files.expert_counts import read_expert_load
    from stepsim.workload.scaling import fullest_load

    assert isfinite(fullest_load(read_expert_load(path), 4))


def check_expert_counts(path: Path) -> None:
    from stepsim.files.expert_counts import is_expert_counts, read_expert_counts

    if is_expert_counts(path):
        counts = read_expert_counts(path)
        assert all(sum(tokens) > 0 for tokens in counts.tokens.values()), counts


def check_measurements(path: Path) -> None:
    from stepsim.files.collectives.measurements import read_measurements

    table = read_measurements([path], CollectiveKind.ALL_REDUCE)
    kept, _ = table.without_outliers()
    for curve in kept.curves:
        for size in (0, 1, 12345, 1 << 40):
            time = curve.duration_ps(size)
            assert time is None or 0 <= time < 2**63, f"{size} bytes take {time} ps"


def finite_json(text: bytes | str) -> None:
    """Check that a JSON document can be read and holds numbers only."""
    import msgspec

    finite(msgspec.json.decode(text))


def check_profile(path: Path) -> None:
    from stepsim.base.errors import StepsimError
    from stepsim.explain.stragglers import find_stragglers
    from stepsim.files.traces.forms import read_profile
    from stepsim.measured.profile_run import run_of_profile
    from stepsim.measured.ready import ready_run
    from stepsim.runs.learned import calibrate_profiles
    from stepsim.runs.what_if import change_run
    from stepsim.views.profiles import profile_replay_shown, profile_shown

    profile = read_profile(path)
    try:
        calibrate_profiles([profile])
        change_run(ready_run(run_of_profile(profile)), microbatches=2)
    except StepsimError:
        pass  # what a profile does not hold; the rest is read all the same
    found = find_stragglers(profile)
    printed(path, profile_shown(found))
    printed(path, profile_replay_shown(found))


def check_run(source: Path) -> None:
    from stepsim.files.measured import load_trace
    from stepsim.files.traces.forms import is_measured
    from stepsim.measured.layers import Durations
    from stepsim.measured.ready import ready_run
    from stepsim.runs.replay import replay
    from stepsim.views.measured import measured_shown, replay_table

    is_measured(source)
    path = source if source.is_file() else source / "rank0.txt"
    summary = load_trace(source)
    degrees = summary.degrees
    printed(path, measured_shown(summary))
    if degrees.pp > 16 or degrees.microbatches > 64:
        return
    ready = ready_run(summary)
    result = replay(ready, Durations.MEDIAN)
    finite_json(result.document().to_json())
    printed(path, [replay_table(ready, result.report)])


def check_folder(path: Path) -> None:
    """A folder with this trace of rank 0 and a sound one of rank 1."""
    (path.parent / "rank1.txt").write_bytes(seeds.second_trace())
    check_run(path.parent)


def check_log(path: Path) -> None:
    from stepsim.files.traces.forms import is_measured
    from stepsim.files.traces.optimus_log import read_optimus_log
    from stepsim.runs.leaf import simulate_leaves
    from stepsim.views.measured import measured_shown

    is_measured(path)
    run = read_optimus_log(path)
    if run.plan.pp * run.plan.microbatches > 1024 or run.plan.npus > MOST_RANKS:
        return
    result = simulate_leaves(run)
    finite_json(result.document().to_json())
    printed(path, measured_shown(run))


def check_result(path: Path) -> None:
    from stepsim.explain.diff import diff_results, explain
    from stepsim.files.load import load_result
    from stepsim.views.comparison import diff_shown

    found = load_result(path)
    path.with_name("other.json").write_bytes(seeds.results()[0])
    other = load_result(path.with_name("other.json"))
    for diff in (diff_results(found, other), diff_results(other, found)):
        explain(diff)
        printed(path, diff_shown(diff))


def check_report(path: Path) -> None:
    from stepsim.views.pages import file_page

    page = path.with_suffix(".html")
    file_page(path).write(page, "stepsim report")
    finite(answers_of(page.read_bytes()))


def check_sweep(path: Path) -> None:
    from stepsim.explore.sweep import open_for_reading
    from stepsim.files.sweep_document import write_table
    from stepsim.files.sweep_table import SweepTable
    from stepsim.views.studies import sweep_shown

    with open_for_reading(path) as store:
        table = SweepTable(store=store)
        write_table(table, path.with_suffix(".csv"))
        printed(path, sweep_shown(table))


def parse_units(text: str) -> None:
    from stepsim.base.units import parse_bandwidth, parse_size_bytes, parse_time_ps

    parsers = (parse_time_ps, parse_size_bytes, parse_bandwidth)
    refused = 0
    for parse in parsers:
        try:
            assert parse(text) >= 0, f"{text} is negative"
        except StepsimError as error:
            refused, last = refused + 1, error
    if refused == len(parsers):
        raise last


def parse_slow(text: str) -> None:
    from stepsim.workload.scaling import parse_slow_ranks

    assert np.isfinite(parse_slow_ranks(text).factors(64)).all()


def parse_sizes(text: str) -> None:
    from stepsim.network.one_collective import parse_sizes

    assert all(size >= 0 for size in parse_sizes(text))


def parse_algorithm(text: str) -> None:
    from stepsim.network.collectives import parse_algorithms

    parse_algorithms(text.split(" "))


def parse_schedule(text: str) -> None:
    from stepsim.parallel.schedules import build

    if not text.startswith("auto-zb"):
        build(text, ranks=4, microbatches=8)
