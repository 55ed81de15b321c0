"""Pages on a phone, a tablet and a desk, light and dark: words are whole, everything fits."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweeps import study

import stepsim
from browser.conftest import Open
from browser.test_pages import wait_for
from stepsim.explore.sweep import SweepTable, open_for_reading, run_sweep
from stepsim.files.measured import load_run
from stepsim.measured.summary import RunSummary
from stepsim.runs.measured import replay_measured
from stepsim.show.page.measured import RunBesideReplay
from stepsim.show.page.write import write_comparison, write_step, write_sweep

WORKLOADS = Path(__file__).parents[2] / "workloads"
WIDTHS = (420, 768, 1440)

BROKEN_WORDS = r"""
const broken = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest("script, style, noscript, pre, .plot, [hidden]")) continue;
  for (const word of node.data.matchAll(/[^\s-]+/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set(Array.from(range.getClientRects(), (each) => Math.round(each.top)));
    if (lines.size > 1) broken.push(word[0]);
  }
}
return broken;
"""
CONTRAST = """
const light = (text) => {
  const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = light(getComputedStyle(document.body).backgroundColor);
const names = ["body", "summary", ".beside", "th", "a", "dt"];
const present = names.map((name) => document.querySelector(name)).filter((each) => each);
const found = present.map((each) => {
  const ink = light(getComputedStyle(each).color);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
});
return Math.min(...found);
"""
VALUES = "const texts = figure.renderers.find((each) => each.name === 'values');"
FIGURE = "const figure = Bokeh.documents[0].get_model_by_name(arguments[0]);"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A step whose names are long, two schedules, a sweep, and a measured run."""
    folder = tmp_path_factory.mktemp("looks")
    found = {name: folder / f"{name}.html" for name in ("step", "compare", "sweep", "run")}
    long_name = folder / "a_workload_with_a_name_of_many_words.txt"
    long_name.write_bytes((WORKLOADS / "gpt_tp4.txt").read_bytes())
    step = stepsim.simulate(long_name, "hgx-h100", npus=32, pp=4, microbatches=8)
    write_step(step, found["step"], command="stepsim simulate", what_if="not asked")
    both = stepsim.compare(long_name, "1f1b,zb-h1", "hgx-h100", npus=32, pp=4, microbatches=8)
    write_comparison(both, found["compare"], command="stepsim compare", what_if=["", ""])
    axes = study("fabric.bandwidth=50..400 Gbps:4 log", "compute_scale=0.25..1:4", npus=32, pp=4)
    run_sweep(axes, folder / "a.sqlite", jobs=1)
    with open_for_reading(folder / "a.sqlite") as store:
        write_sweep(SweepTable(store=store), found["sweep"], command="", axes=())
    run = load_run(WORKLOADS / "measured" / "megatron_moe_rank0.txt", node_size=None)
    assert isinstance(run, RunSummary)
    replay = replay_measured(run, None, None)
    measured = RunBesideReplay.of(run, replay.report)
    write_step(replay, found["run"], command="", what_if="none", measured=measured)
    return found


@pytest.fixture(params=["light", "dark"])
def scheme(chromium: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether pages are asked to be light or dark."""
    _emulate(chromium, request.param)
    yield request.param
    _emulate(chromium, "")
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _emulate(driver: Any, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _resize(driver: Any, width: int) -> None:
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _fits(driver: Any, width: int) -> bool:
    return bool(driver.execute_script("return document.documentElement.scrollWidth") <= width)


@pytest.mark.parametrize("name", ["step", "compare", "sweep", "run"])
def test_pages_fit_and_break_no_word(
    chromium: Any, browse: Open, pages: dict[str, Path], scheme: str, name: str
) -> None:
    driver = browse(pages[name])
    for width in WIDTHS:
        _resize(chromium, width)
        wait_for(partial(_fits, driver, width))
        assert driver.execute_script(BROKEN_WORDS) == []
    assert driver.execute_script(CONTRAST) > 4.5
    if name == "sweep":
        driver.execute_script(FIGURE + VALUES + "if (!texts.visible) throw texts;", "map-0")
    dark = scheme == "dark"
    plot = {"step": "timeline-0", "compare": "timeline-1", "sweep": "map-0", "run": "measured"}[
        name
    ]
    paper = driver.execute_script(FIGURE + "return figure.background_fill_color", plot)
    assert (paper == "#0d1117") == dark


def test_streams_are_named_where_there_is_room(
    chromium: Any, browse: Open, pages: dict[str, Path]
) -> None:
    _resize(chromium, 420)
    driver = browse(pages["step"])
    named = FIGURE + "return figure.left.find((each) => each.name === 'streams').visible"
    assert not driver.execute_script(named, "timeline-0")
    _resize(chromium, 1440)
    driver.find_element("id", "timeline-0").send_keys("l")
    wait_for(lambda: driver.execute_script(named, "timeline-0"))
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
