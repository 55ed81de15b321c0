"""Figures: styles, colours, bytes, and that what is drawn is what was found."""

import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eyes import BLIND, lab
from helpers import Run, uniform_workload
from sweeps import SMALL, study

import stepsim
from stepsim.base.axes import ParallelAxis, Part, PartKind, parts_of
from stepsim.base.errors import SweepError
from stepsim.base.structs import replace
from stepsim.explore.sweep import SweepTable, open_for_reading, run_sweep
from stepsim.parallel.schedules import BUILDERS
from stepsim.show.figures.drawing import drawn, styled
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.timelines import timelines_figure
from stepsim.show.palette import (
    IDLE,
    PALETTE,
    PART_TINTS,
    PATH,
    SHADES,
    Shade,
    contrast,
    ink_on,
    series_colours,
)
from stepsim.views.sweep import plot_sweep
from stepsim.views.sweep.breakdowns import STACKING, breakdown_figure
from stepsim.views.sweep.lines import bubble_closed_form, line_figure
from stepsim.views.sweep.view import FigureKind, choose_view
from stepsim.views.timelines import drawn_step

ROOT = Path(__file__).resolve().parents[3]
JOB: dict[str, Any] = {"npus": 32, "pp": 4}
IDLE_PARTS = parts_of(PartKind.IDLE)
TINTS = [light for _, (light, _) in SHADES.values()]
PART_COLOURS = {part: light for part, (light, _) in PART_TINTS.items()}
SUFFIXES = (".png", ".svg", ".pdf")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepTable]:
    """Microbatches, bandwidths and schedules of a small job, one of which cannot run."""
    axes = ["microbatches=4,8,16", "fabric.bandwidth=10..400 Gbps:3 log"]
    axes += ["schedule=1f1b,interleaved:2,dualpipe-v"]
    database = tmp_path_factory.mktemp("figures") / "a.sqlite"
    run_sweep(study(*axes, breakdown=True, **JOB), database, jobs=1)
    with open_for_reading(database) as store:
        yield SweepTable(store=store)


@pytest.mark.parametrize("blindness", BLIND)
@pytest.mark.parametrize(
    ("colours", "least"),
    [
        (PALETTE, 15),
        (TINTS[: 1 + Shade.PER_STEP], 20),
        (list(PART_COLOURS.values()), 10),
    ],
    ids=["series", "actions", "parts"],
)
def test_colours_can_be_told_apart(colours: Sequence[str], least: float, blindness: str) -> None:
    for one, other in combinations(colours, 2):
        apart = float(np.linalg.norm(lab(one, blindness) - lab(other, blindness)))
        assert apart > least, f"{one} and {other}: {apart:.1f}"


@pytest.mark.parametrize("blindness", BLIND)
def test_a_colour_means_one_thing_within_a_figure(blindness: str) -> None:
    """Actions, parts, communication of every axis: what is shown together differs and is seen."""
    recorded = (Shade.COMPUTE, Shade.TRANSFER)
    shown = {colour for shade, (_, (colour, _)) in SHADES.items() if shade not in recorded}
    parts = [(part, colour) for part, colour in PART_COLOURS.items() if part not in IDLE_PARTS]
    of_axes = {PART_COLOURS[axis.exposed] for axis in ParallelAxis} | {PART_COLOURS[Part.HOST]}
    assert of_axes <= shown  # a collective and the time that waits for it are one thing
    every = {*shown, *(colour for _, colour in parts), PATH}
    assert len(shown) == len(SHADES) - len(recorded)
    for one, other in combinations(sorted(every), 2):
        assert float(np.linalg.norm(lab(one, blindness) - lab(other, blindness))) > 12
    assert all(contrast(colour, "#ffffff") >= 3 for colour in {*every, IDLE})


def test_numbers_on_boxes_can_be_read() -> None:
    for colour in (*TINTS, *PALETTE, *PART_COLOURS.values()):
        ink = 0.0 if ink_on(colour) == "black" else 100.0
        assert abs(lab(colour, "none")[0] - ink) > 40, colour


def test_a_schedule_has_one_colour_in_every_company() -> None:
    alone = {name: series_colours([name], [*BUILDERS])[0] for name in BUILDERS}
    assert len(set(alone.values())) == len(BUILDERS)
    for names in (["zb-v", "1f1b"], ["gpipe", "1f1b", "zb-v"]):
        assert series_colours(names, [*BUILDERS]) == [alone[name] for name in names]
    shades = series_colours([f"interleaved:{v}" for v in (2, 4, 8)], [*BUILDERS])
    assert shades[0] == alone["interleaved"]
    assert len(set(shades)) == 3


@pytest.mark.parametrize("style", FigureStyle)
def test_every_style_has_its_width_in_every_format(
    table: SweepTable, tmp_path: Path, style: FigureStyle
) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        plot_sweep(table, path, names=["microbatches", "schedule"], style=style)
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
    plot_sweep(table, tmp_path / "a.svg", names=["microbatches", "schedule"])
    assert re.search(r"step time \(m?s\)</text>", (tmp_path / "a.svg").read_text())
    plot_sweep(table, tmp_path / "a.pdf", names=["microbatches", "schedule"])
    data = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in data
    assert b"/Type3" not in data


DRAW = """
import sys
from pathlib import Path
from stepsim.explore.sweep import SweepTable, open_for_reading
from stepsim.files.load import topology_of
from stepsim.views.sweep import plot_sweep
from stepsim.views.topologies import draw_topology
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
    view = choose_view(table, ["microbatches", "schedule"], FigureKind.BREAKDOWN)
    with styled(FigureStyle.PAGE):
        figure = breakdown_figure(view, FigureStyle.PAGE)
    (steps,) = table.fastest(view.shown, ["step_time_ps"]) / 1e12
    parts = table.fastest(view.shown, table.part_columns) / 1e12
    scale = 1e-3 if steps[~np.isnan(steps)].max() < 1 else 1.0
    for number, axes in enumerate(figure.axes):
        tops = np.zeros(3)
        for several, bars in zip(STACKING.values(), axes.containers, strict=True):
            heights = np.array([bar.get_height() for bar in bars]) * scale
            own = parts[[*several], :, number].sum(axis=0)
            assert heights == pytest.approx(np.nan_to_num(own))
            tops += heights
        assert tops == pytest.approx(np.nan_to_num(steps[:, number]), rel=1e-9)
    failed = figure.axes[2]
    assert [text.get_text() for text in failed.texts] == ["failed", "failed", "failed"][
        : int(np.isnan(steps[:, 2]).sum())
    ]


def test_lines_are_the_simulated_bubbles_and_thin_ones_closed_forms(table: SweepTable) -> None:
    view = choose_view(table, ["microbatches", "schedule"], FigureKind.BUBBLE)
    style = FigureStyle.SCREEN
    with styled(style):
        (axes,) = line_figure(view, style).axes
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
    counts = [4, 8, 16]
    work = uniform_workload(forward=1000, backward=2000, pp=4, microbatches=1)
    block = work.microbatches[0]
    work = replace(work, microbatches=(replace(block, layers=block.layers * 4),))
    for name in ("gpipe", "1f1b", "interleaved:2", "interleaved:4", "looped-bfs:2"):
        bubbles = [
            stepsim.simulate(
                work, "ideal", schedule=name, microbatches=count
            ).report.bubble_fraction
            for count in counts
        ]
        assert bubbles == pytest.approx(bubble_closed_form(name, 4, np.array(counts)))
    for name in ("zb-h1", "dualpipe", "auto-zb", "x.csv", "interleaved"):
        assert bubble_closed_form(name, 4, np.array(counts)) is None


@pytest.mark.parametrize("style", FigureStyle)
@pytest.mark.parametrize("runs", [1, 3])
def test_titles_rows_and_legend_of_a_timeline_lie_apart(style: FigureStyle, runs: int) -> None:
    """However narrow a figure is: it grows with the lines of its titles and of its legend."""
    work = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=2000)
    step = stepsim.simulate(work, "hgx-h100", schedule="zb-h1")
    with styled(style):
        figure = timelines_figure([drawn_step(step.timeline, step.report)] * runs, style)
        figure.draw_without_rendering()
    parts: list[Any] = [figure.legends[0].get_window_extent()]
    for axes in reversed(figure.axes):
        title = axes._left_title  # type: ignore[attr-defined]  # no public name has the artist
        parts += [axes.get_window_extent(), title.get_window_extent()]
    assert all(upper.y0 >= lower.y1 for lower, upper in pairwise(parts))
    assert parts[-1].y1 <= figure.bbox.y1


def test_boxes_of_a_timeline_are_its_actions() -> None:
    result = stepsim.simulate(SMALL, "hgx-h100", microbatches=4, **JOB)
    with styled(FigureStyle.PAGE):
        run = drawn_step(result.timeline, result.report)
        (axes,) = timelines_figure([run], FigureStyle.PAGE).axes
    blue = TINTS[Shade.FORWARD]
    from matplotlib.colors import to_hex

    drawn = [colour for each in axes.collections for colour in np.atleast_2d(each.get_facecolor())]
    assert sum(to_hex(colour) == blue for colour in drawn) == 4 * 4
    assert axes.get_ylabel() == "stage"


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        (["microbatches", "fabric.bandwidth", "schedule"], "breakdown", "one or two axes"),
        ([], "pie", "expected one of time, bubble, breakdown"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    table: SweepTable, tmp_path: Path, names: list[str], kind: str, message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        plot_sweep(table, tmp_path / "a.png", names=names, kind=kind)
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
    axes = ("--set", "fabric.bandwidth=100,400 Gbps", "--set", "schedule=1f1b,dualpipe-v")
    code, out, error = run(*base, *axes)
    assert (code, error) == (0, "")
    assert "failed, fabric.bandwidth=100 Gbps, schedule=dualpipe-v: " in out
    code, _, error = run(*base, *axes, "--plot", tmp_path / "a.png")
    assert code == 2
    assert "--plot draws the steps of one job: expected no --set" in error


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
    def broken(_: None, style: FigureStyle) -> Any:
        raise SweepError("no")

    with pytest.raises(SweepError):
        drawn(broken)(None, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
