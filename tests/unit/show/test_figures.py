"""Figures: styles, colours, bytes, and that what is drawn is what was found."""

import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run
from sweeps import SMALL, study

import stepsim
from stepsim.base.errors import SweepError
from stepsim.base.structs import replace
from stepsim.explore.noise.draws import NoiseModel
from stepsim.explore.noise.sweeps import sweep_noise
from stepsim.explore.sweep import SweepTable, open_for_reading, run_sweep
from stepsim.network.one_collective import probe_collective
from stepsim.parallel.schedules import BUILDERS
from stepsim.show.figures.collectives import plot_probes
from stepsim.show.figures.drawing import make_figure, styled
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep import FIGURE_KINDS, choose_view, plot_pareto, plot_sweep
from stepsim.show.figures.sweep.bands import noise_sweep_figure
from stepsim.show.figures.sweep.bounds import Bound, bound_figure, bounds_of
from stepsim.show.figures.sweep.breakdowns import STACKING, breakdown_figure
from stepsim.show.figures.sweep.lines import bubble_closed_form, line_figure
from stepsim.show.figures.timelines import drawn_step, timelines_figure
from stepsim.show.page.sweep_page import sweep_page
from stepsim.show.palette import (
    ACTION_COLOURS,
    ON_DARK,
    PALETTE,
    PART_COLOURS,
    PATH,
    PER_STEP,
    SHADES,
    ink_on,
    series_colour,
    series_colours,
)
from stepsim.workload.rows import CollectiveKind, ParallelAxis, Part, PartKind, parts_of

ROOT = Path(__file__).resolve().parents[3]
JOB: dict[str, Any] = {"npus": 32, "pp": 4}
IDLE_PARTS = parts_of(PartKind.IDLE)
SUFFIXES = (".png", ".svg", ".pdf")

# Machado, Oliveira, Fernandes (2009), severity 1: what each colour blindness makes of linear sRGB
BLIND = {
    "none": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175]]
XYZ += [[0.0193339, 0.1191920, 0.9503041]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepTable]:
    """Microbatches, bandwidths and schedules of a small job, one of which cannot run."""
    axes = ["microbatches=4,8,16", "fabric.bandwidth=10..400 Gbps:3 log"]
    axes += ["schedule=1f1b,interleaved:2,dualpipe-v"]
    database = tmp_path_factory.mktemp("figures") / "a.sqlite"
    run_sweep(study(*axes, breakdown=True, **JOB), database, jobs=1)
    with open_for_reading(database) as store:
        yield SweepTable(store=store)


def lab(colour: str, blindness: str) -> Any:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLIND[blindness]) @ linear, 0, 1)
    x, y, z = np.cbrt(np.array(XYZ) @ seen / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("blindness", BLIND)
@pytest.mark.parametrize(
    ("colours", "least"),
    [
        (PALETTE, 15),
        ([*ACTION_COLOURS.values(), PER_STEP], 20),
        (list(PART_COLOURS.values()), 10),
        ([PART_COLOURS[p] for p in Part if p.name.startswith(("COMPUTE", "EXPOSED", "HOST"))], 15),
    ],
    ids=["series", "actions", "parts", "busy parts"],
)
def test_colours_can_be_told_apart(colours: Sequence[str], least: float, blindness: str) -> None:
    for one, other in combinations(colours, 2):
        apart = float(np.linalg.norm(lab(one, blindness) - lab(other, blindness)))
        assert apart > least, f"{one} and {other}: {apart:.1f}"


@pytest.mark.parametrize("blindness", BLIND)
def test_a_colour_means_one_thing_within_a_figure(blindness: str) -> None:
    """Actions, parts, communication of every axis: what a page shows together differs."""
    shown = {colour: name for name, colour in SHADES.values()}
    parts = [(part, colour) for part, colour in PART_COLOURS.items() if part not in IDLE_PARTS]
    of_axes = {PART_COLOURS[axis.exposed] for axis in ParallelAxis} | {PART_COLOURS[Part.HOST]}
    assert of_axes <= set(shown)  # a collective and the time that waits for it are one thing
    every = {*shown, *(colour for _, colour in parts), PATH}
    dark = {ON_DARK.get(colour, colour) for colour in every}
    assert len(shown) == len(SHADES)
    for colours in (every, dark):
        for one, other in combinations(sorted(colours), 2):
            assert float(np.linalg.norm(lab(one, blindness) - lab(other, blindness))) > 12


def test_numbers_on_boxes_can_be_read() -> None:
    for colour in (*ACTION_COLOURS.values(), *PALETTE, *PART_COLOURS.values()):
        ink = 0.0 if ink_on(colour) == "black" else 100.0
        assert abs(lab(colour, "none")[0] - ink) > 40, colour


def test_a_schedule_has_one_colour_in_every_company() -> None:
    alone = {name: series_colours([name])[0] for name in BUILDERS}
    assert len(set(alone.values())) == len(BUILDERS)
    for names in (["zb-v", "1f1b"], ["gpipe", "1f1b", "zb-v"]):
        assert series_colours(names) == [alone[name] for name in names]
    shades = series_colours([f"interleaved:{v}" for v in (2, 4, 8)])
    assert shades[0] == alone["interleaved"]
    assert len(set(shades)) == 3


@pytest.fixture
def thirty(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Thirty schedules: those there are, and others that order their actions as 1F1B does."""
    for i in range(30 - len(BUILDERS)):
        monkeypatch.setitem(BUILDERS, f"own-{i}", BUILDERS["1f1b"])
    return list(BUILDERS)


@pytest.mark.parametrize("blindness", BLIND)
def test_thirty_schedules_have_colours_that_can_be_told_apart(
    thirty: list[str], blindness: str
) -> None:
    colours = series_colours(thirty)
    assert colours[:10] == list(PALETTE)
    for one, other in combinations(colours, 2):
        assert float(np.linalg.norm(lab(one, blindness) - lab(other, blindness))) > 12


def test_there_is_a_colour_for_any_number_of_series() -> None:
    colours = [series_colour(i) for i in range(200)]
    assert len(set(colours)) == 200
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def test_a_figure_of_many_schedules_shows_them_all(thirty: list[str], tmp_path: Path) -> None:
    names = thirty[6:]
    axes = ["microbatches=8", f"schedule={','.join(names)}"]
    run_sweep(study(*axes, breakdown=True, **JOB), tmp_path / "a.sqlite", jobs=1)
    with open_for_reading(tmp_path / "a.sqlite") as store:
        many = SweepTable(store=store)
        view = choose_view(many, ["microbatches", "schedule"])
        with styled(FigureStyle.SCREEN):
            figure = line_figure(many, view, FigureStyle.SCREEN)
        plot_pareto(many, tmp_path / "a.svg")
        sweep_page(many, command="stepsim sweep")
    (axes_of,) = figure.axes
    assert len({line.get_color() for line in axes_of.lines}) == len(names) == 24


def test_thirty_algorithms_are_told_apart() -> None:
    network = stepsim.load_topology("hgx-h100")
    probe = probe_collective(network, CollectiveKind.ALL_REDUCE, [1 << 20, 1 << 24], range(8))
    probes = [replace(probe, algorithm=f"own_{i}") for i in range(30)]
    with styled(FigureStyle.SCREEN):
        left, right = plot_probes(probes, style=FigureStyle.SCREEN).axes
    for axes in (left, right):
        assert len({line.get_color() for line in axes.lines}) == 30
        assert len({line.get_marker() for line in axes.lines}) == 10


def drawings(table: SweepTable) -> dict[str, Any]:
    """Something of every kind that is drawn from a result."""
    result = stepsim.simulate(SMALL, "hgx-h100", microbatches=4, **JOB)
    names = ["microbatches", "schedule"]
    fabric = ["fabric.bandwidth", "microbatches"]
    return {
        "timeline": result.plot,
        "time": partial(plot_sweep, table, names=names),
        "map": partial(plot_sweep, table, names=[*fabric, "schedule"]),
        "bubble": partial(plot_sweep, table, names=names, kind="bubble"),
        "breakdown": partial(plot_sweep, table, names=names, kind="breakdown"),
        "bound": partial(plot_sweep, table, names=fabric, kind="bound"),
    }


def test_every_figure_has_the_width_of_its_style(table: SweepTable, tmp_path: Path) -> None:
    for name, draw in drawings(table).items():
        path = tmp_path / f"{name}.svg"
        draw(path=path, style=FigureStyle.COLUMN)
        width = FigureStyle.COLUMN.width_in
        assert width_in(path, FigureStyle.COLUMN) == pytest.approx(width, abs=0.01), name


@pytest.mark.parametrize("style", FigureStyle)
def test_every_style_has_its_width_in_every_format(
    table: SweepTable, tmp_path: Path, style: FigureStyle
) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        plot_sweep(table, path, ["microbatches", "schedule"], style=style)
        assert width_in(path, style) == pytest.approx(style.width_in, abs=0.01), suffix


def width_in(path: Path, style: FigureStyle) -> float:
    data = path.read_bytes()
    if path.suffix == ".png":
        return float(struct.unpack(">I", data[16:20])[0]) / style.dpi
    pattern = rb'width="([0-9.]+)pt"' if path.suffix == ".svg" else rb"/MediaBox \[ 0 0 ([0-9.]+)"
    found = re.search(pattern, data)
    assert found
    return float(found[1]) / 72


def test_text_is_text(table: SweepTable, tmp_path: Path) -> None:
    plot_sweep(table, tmp_path / "a.svg", ["microbatches", "schedule"])
    assert re.search(r"step time \(m?s\)</text>", (tmp_path / "a.svg").read_text())
    plot_sweep(table, tmp_path / "a.pdf", ["microbatches", "schedule"])
    data = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in data
    assert b"/Type3" not in data


DRAW = """
import sys
from pathlib import Path
from stepsim.explore.sweep import SweepTable, open_for_reading
from stepsim.files.load import topology_of
from stepsim.show.figures.sweep import plot_sweep
from stepsim.show.figures.topologies import draw_topology
draw_topology(topology_of("hgx-h100"), Path(sys.argv[2] + ".svg"))
with open_for_reading(Path(sys.argv[1])) as store:
    for name in sys.argv[2:]:
        plot_sweep(SweepTable(store=store), Path(name), kind="breakdown", style="column")
"""


def test_bytes_depend_on_the_result_alone(table: SweepTable, tmp_path: Path) -> None:
    """Not on hash seeds, the time, or a user's own settings of matplotlib."""
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.family: serif\n")
    for run, more in (("a", {}), ("b", {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc")})):
        (tmp_path / run).mkdir()
        names = [str(tmp_path / run / f"x{suffix}") for suffix in SUFFIXES]
        environment = os.environ | {"PYTHONHASHSEED": {"a": "1", "b": "3"}[run]} | more
        command = [sys.executable, "-c", DRAW, str(table.store.path), *names]
        subprocess.run(command, env=environment, check=True)
    for suffix in (*SUFFIXES, f"{SUFFIXES[0]}.svg"):
        one, other = (tmp_path / run / f"x{suffix}" for run in "ab")
        assert one.read_bytes() == other.read_bytes(), suffix


def test_stacks_add_up_to_the_step_and_are_the_parts(table: SweepTable) -> None:
    view = choose_view(table, ["microbatches", "schedule"], FIGURE_KINDS["breakdown"])
    with styled(FigureStyle.PAGE):
        figure = breakdown_figure(table, view, FigureStyle.PAGE)
    (steps,) = table.fastest(view.shown, ["step_time_ps"]) / 1e12
    parts = table.fastest(view.shown, table.part_columns) / 1e12
    scale = 1e-3 if steps[~np.isnan(steps)].max() < 1 else 1.0
    for number, axes in enumerate(figure.axes):
        tops = np.zeros(3)
        for part, bars in zip(STACKING, axes.containers, strict=True):
            heights = np.array([bar.get_height() for bar in bars]) * scale
            assert heights == pytest.approx(np.nan_to_num(parts[part, :, number]))
            tops += heights
        assert tops == pytest.approx(np.nan_to_num(steps[:, number]), rel=1e-9)
    failed = figure.axes[2]
    assert [text.get_text() for text in failed.texts] == ["failed", "failed", "failed"][
        : int(np.isnan(steps[:, 2]).sum())
    ]


def test_lines_are_the_simulated_bubbles_and_thin_ones_closed_forms(table: SweepTable) -> None:
    view = choose_view(table, ["microbatches", "schedule"], FIGURE_KINDS["bubble"])
    style = FigureStyle.SCREEN
    with styled(style):
        (axes,) = line_figure(table, view, style, bubble=True).axes
    thick = [line for line in axes.lines if line.get_linewidth() == style.line_pt]
    thin = [line for line in axes.lines if line.get_linewidth() < style.line_pt]
    (found,) = table.fastest(view.shown, ["bubble_fraction"])
    for i, line in enumerate(thick):
        np.testing.assert_allclose(np.asarray(line.get_ydata()), 100 * found[:, i])
    for line, chunks in zip(thin, (1, 2), strict=True):
        counts, shown = (np.asarray(each) for each in line.get_data())
        assert shown == pytest.approx(100 * 3 / (chunks * counts + 3))
    assert thick[0].get_color() == thin[0].get_color()


def test_closed_forms_hold_for_even_stages_and_free_messages() -> None:
    """An even pipeline without a network: the simulated bubble is (P-1) / (vm + P-1)."""
    from stepsim.parallel.schedules import build

    counts = np.array([4.0, 8.0, 16.0])
    for name in ("gpipe", "1f1b", "interleaved:2", "interleaved:4", "looped-bfs:2"):
        found = bubble_closed_form(name, 4, counts)
        assert found is not None
        for count, fraction in zip(counts.astype(int).tolist(), found.tolist(), strict=True):
            assert idle_share(build(name, ranks=4, microbatches=count)) == pytest.approx(fraction)
    for name in ("zb-h1", "dualpipe", "auto-zb", "x.csv", "interleaved"):
        assert bubble_closed_form(name, 4, counts) is None


def idle_share(schedule: Any) -> float:
    """Idle share of ranks whose forwards take 1 and backwards 2, messages nothing."""
    end: dict[tuple[str, int, int], float] = {}
    clock = [0.0] * len(schedule.orders)
    left = [list(schedule.actions(rank)) for rank in range(len(schedule.orders))]
    last = schedule.placement.stages - 1
    while any(left):
        for rank, actions in enumerate(left):
            while actions:
                kind, stage, mb = actions[0].kind.value, actions[0].stage, actions[0].microbatch
                before = ("F", stage - 1, mb) if kind == "F" else ("B", stage + 1, mb)
                if kind == "B" and stage == last:
                    before = ("F", stage, mb)
                if before not in end and not (kind == "F" and stage == 0):
                    break
                start = max(clock[rank], end.get(before, 0.0))
                clock[rank] = end[kind, stage, mb] = start + (1 if kind == "F" else 2)
                actions.pop(0)
    work = 3 * schedule.microbatches * schedule.placement.chunks
    return float(1 - work / max(clock))


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({Part.COMPUTE: 5, Part.EXPOSED_DP: 5}, Bound.COMPUTE),
        ({Part.COMPUTE: 4, Part.HOST: 1, Part.TAIL: 5}, Bound.COMPUTE),
        ({Part.COMPUTE: 4, Part.EXPOSED_TP: 4, Part.INNER: 2}, Bound.NETWORK),
        ({Part.COMPUTE: 4, Part.EXPOSED_TP: 3, Part.INNER: 2, Part.SKEW: 1}, Bound.IDLE),
        ({Part.COMPUTE: 1, Part.HEAD: 9}, Bound.IDLE),
        ({Part.COMPUTE: 4, Part.EXPOSED_HOST: 5, Part.EXPOSED_EP: 1}, Bound.HOST),
        ({Part.COMPUTE: 4, Part.EXPOSED_HOST: 3, Part.EXPOSED_EP: 3}, Bound.NETWORK),
    ],
)
def test_bounds_are_as_defined(parts: dict[Part, float], bound: Bound) -> None:
    column = np.array([[parts.get(part, 0.0)] for part in Part])
    assert bounds_of(column).tolist() == [bound]


def test_the_map_of_bounds_shows_them(table: SweepTable) -> None:
    view = choose_view(table, ["fabric.bandwidth", "microbatches"], FIGURE_KINDS["bound"])
    with styled(FigureStyle.COLUMN):
        (axes,) = bound_figure(table, view, FigureStyle.COLUMN).axes
    wanted = bounds_of(table.fastest(view.shown, table.part_columns))
    mesh: Any = axes.collections[0]
    assert mesh.get_array().tolist() == wanted.T.tolist()


def test_bands_are_percentiles_of_the_draws(tmp_path: Path) -> None:
    axes = "fabric.bandwidth=100,400 Gbps", "schedule=1f1b,gpipe"
    job = study(*axes, microbatches=4, **JOB)
    found = sweep_noise(job, model=NoiseModel(task=0.05), samples=16, seed=3)
    with styled(FigureStyle.PAGE):
        (drawn,) = noise_sweep_figure(found, FigureStyle.PAGE).axes
    assert len(found.results) == 4
    seconds = [each.percentile_ps(50) / 1e9 for each in found.results]
    medians = [np.asarray(line.get_ydata()).tolist() for line in drawn.lines[::2]]
    by_schedule = [seconds[found.grid.size // 2 * i :][:2] for i in range(2)]
    np.testing.assert_allclose(medians, by_schedule)
    for band, i in zip(drawn.collections, (0, 2), strict=True):
        (path,) = band.get_paths()
        low, high = path.get_extents().get_points()[:, 1]
        pair = found.results[i : i + 2]
        assert low == pytest.approx(min(each.percentile_ps(5) for each in pair) / 1e9)
        assert high == pytest.approx(max(each.percentile_ps(95) for each in pair) / 1e9)


def test_boxes_of_a_timeline_are_its_actions() -> None:
    result = stepsim.simulate(SMALL, "hgx-h100", microbatches=4, **JOB)
    with styled(FigureStyle.PAGE):
        run = drawn_step(result.timeline, result.report)
        (axes,) = timelines_figure([run], FigureStyle.PAGE).axes
    blue = ACTION_COLOURS[stepsim.parallel.schedules.ActionKind.FORWARD]
    from matplotlib.colors import to_hex

    drawn = [colour for each in axes.collections for colour in np.atleast_2d(each.get_facecolor())]
    assert sum(to_hex(colour) == blue for colour in drawn) == 4 * 4
    assert axes.get_ylabel() == "stage"


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        (["microbatches"], "bound", "needs two axes with numbers"),
        (["microbatches", "schedule"], "bound", "needs two axes with numbers"),
        (["microbatches", "fabric.bandwidth", "schedule"], "breakdown", "one or two axes"),
        ([], "pie", "expected one of time, bubble, breakdown, bound"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    table: SweepTable, tmp_path: Path, names: list[str], kind: str, message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        plot_sweep(table, tmp_path / "a.png", names, kind=kind)
    assert not (tmp_path / "a.png").exists()


def test_parts_are_needed_and_a_sweep_that_draws_them_keeps_them(run: Run, tmp_path: Path) -> None:
    base = (SMALL, "--npus", "16", "--pp", "2", "--set", "microbatches=2,4", "-q", "--jobs", "1")
    bare, full = tmp_path / "bare.sqlite", tmp_path / "full.sqlite"
    drawn = ("--plot", tmp_path / "a.svg", "--plot-kind", "breakdown", "--style", "column")
    assert run("sweep", *base, "--db", bare)[0] == 0
    code, _, error = run("sweep", bare, *drawn)
    assert code == 2
    assert "sweep with --breakdown to keep them" in error
    assert run("sweep", *base, "--db", full, *drawn)[0] == 0
    assert (tmp_path / "a.svg").exists()
    code, _, error = run("sweep", full, "--plot-kind", "bubble")
    assert code == 2
    assert "--plot-kind is about a figure" in error


def test_noise_over_axes_from_the_command_line(run: Run, tmp_path: Path) -> None:
    base = ("noise", SMALL, "--npus", "16", "--pp", "2", "-m", "2", "--samples", "4", "-q")
    path = tmp_path / "a.pdf"
    axes = ("--set", "fabric.bandwidth=100,400 Gbps", "--set", "schedule=1f1b,dualpipe-v")
    code, out, error = run(*base, *axes, "--plot", path)
    assert (code, error) == (0, "")
    assert path.read_bytes().startswith(b"%PDF")
    assert "failed, fabric.bandwidth=100 Gbps, schedule=dualpipe-v: " in out
    code, out, _ = run(*base, *axes, "--json", "-")
    assert code == 0
    assert '"p95_ps"' in out
    code, _, error = run(*base, "--set", "schedule=1f1b,gpipe", "--plot", path)
    assert code == 2
    assert "expected one with numbers" in error


def test_names_from_files_are_never_read_as_formulas(tmp_path: Path) -> None:
    source = tmp_path / "a$x_1$b^.txt"
    source.write_bytes(SMALL.read_bytes())
    result = stepsim.simulate(source, "hgx-h100", microbatches=4, **JOB)
    result.plot(tmp_path / "a.svg")
    assert "a$x_1$b^.txt on hgx-h100" in (tmp_path / "a.svg").read_text()


def test_every_figure_of_the_docs_is_in_the_gallery() -> None:
    script = ROOT / "docs/make_figures.py"
    spec = importlib.util.spec_from_file_location("make_figures", script)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_figures"] = module
    spec.loader.exec_module(module)
    assert (ROOT / "docs/figures.md").read_text() == module.gallery()
    made = {file for each in module.PICTURES for file in each.files}
    there = {path.name for path in (ROOT / "docs/figures").iterdir() if path.is_file()}
    assert made <= there
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    assert [name for name in there if f"figures/{name}" not in pages] == []


def test_nothing_is_left_of_a_figure_that_fails(tmp_path: Path) -> None:
    def broken(style: FigureStyle) -> Any:
        raise SweepError("no")

    with pytest.raises(SweepError):
        make_figure(broken, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
