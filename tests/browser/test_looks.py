"""Every kind of page on a phone, a tablet and a desk, light, dark and printed: its ink is seen."""

import base64
import io
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import answers_of

from browser.conftest import Open
from browser.looking import complaints, emulate, faint, requests, resize
from stepsim import cli
from stepsim.show.page.looks import PAPERS
from stepsim.show.palette import contrast

Made = Callable[[str], tuple[Path, str]]
"""The page of a kind, and what its command printed."""

WIDTHS = 1440, 768, 420
TEXT = "{workloads}/gpt_tp4.txt --npus 8 --pp 2 -m 2"
SPEEDS = "--set nvlink.bandwidth=100,400GB/s --set fabric.bandwidth=25,50GB/s"
LENGTHS = "--lengths 'lognormal(mu=6.5, sigma=1, most=8192)' --packers first-fit --steps 3"
STEP = f"simulate {TEXT} --json step.json --kineto kineto --chakra chakra -q"
KINDS: Mapping[str, str] = {
    "text": "simulate {workloads}/gpt_1024.txt",
    "model": "simulate llama-3.2-1b --npus 8 --tp 2 --global-batch 8",
    "comparison": f"compare {TEXT} --schedules 1f1b,interleaved:2",
    "sweep": f"sweep {TEXT} --db sweep.sqlite {SPEEDS}",
    "study": f"simulate llama-3-8b --npus 16 --tp 2 --sequence 8192 -m 4 {LENGTHS}",
    "Kineto": "simulate kineto",
    "Chakra": "simulate chakra",
    "Nsight": "simulate {profiles}/nsys/mfu_2gpu_before.sqlite",
    "NDTimeline": "simulate {profiles}/ndtimeline/trace-ST.parquet",
    "Megatron": "simulate {workloads}/measured/megatron_moe_rank0.txt",
    "stored step": "report step.json",
}
INK = """
const shown = find("timeline"), copy = document.createElement("canvas"), found = [];
const pen = copy.getContext("2d", { willReadFrequently: true });
const width = page.scale ? page.scale.width : 1, height = shown.height * width / shown.width;
Object.assign(copy, { width, height }); // dots as its boxes are, however fine it is drawn
if (page.scale) pen.drawImage(shown, 0, 0, width, height);
for (const { run } of drawnRuns()) run.lanes.rows.forEach((name, row) => {
  const own = page.boxes.filter((box) => box.run === run && box.span.spans && box.span.row === row);
  const { left, top, wide } = own.reduce((a, b) => b.wide > a.wide ? b : a, { wide: 0 });
  const dot = wide ? [...pen.getImageData(left + wide / 2, top + 1, 1, 1).data] : [0, 0, 0, 0];
  const parts = dot.slice(0, 3).map((n) => n.toString(16).padStart(2, "0"));
  found.push(dot[3] ? "#" + parts.join("") : "");
});
return found;
"""
WRONG = r"""
const found = [], end = (one) => one.getBoundingClientRect().bottom, timeline = find("timeline");
for (const one of document.querySelectorAll(":not(.scroll)")) {
  const scrolls = one === document.documentElement || getComputedStyle(one).overflowX === "auto";
  if (scrolls && one.scrollWidth > one.clientWidth) found.push(`${one.id || one.tagName} scrolls`);
}
const below = document.querySelector("#timeline:not([hidden]), #figures > img, #bars");
if (end(find("job-name")) > below.getBoundingClientRect().top) found.push("said too late");
if (find("asked").checkVisibility()) found.push("controls of what cannot vary");
if (timeline.clientWidth && page.scale.width !== timeline.clientWidth) found.push("not redrawn");
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest("script, style, noscript, code, [hidden]")) continue;
  for (const word of node.data.matchAll(/[^\s-]+/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set(Array.from(range.getClientRects(), (each) => Math.round(each.top)));
    if (lines.size > 1 && !word[0].includes("/")) found.push(`${word[0]} is broken`);
  }
}
return found;
"""
FIGURES = """
const seen = document.querySelectorAll("#figures > img, #tables table");
return seen.length && [...document.images].every((one) => one.naturalWidth && one.clientWidth);
"""
FRAMES = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Made:
    """Writes the page of a kind as its users do, once; some are of what a step's command wrote."""
    folder = tmp_path_factory.mktemp("looks")

    @cache
    def printed(command: str) -> str:
        places = {"workloads": request.getfixturevalue("workloads")}
        if "{profiles}" in command:
            places["profiles"] = request.getfixturevalue("shared") / "reference" / "profiles"
        return run_in(folder, shlex.split(command.format(**places)))

    @cache
    def page(kind: str) -> tuple[Path, str]:
        if kind in ("Kineto", "Chakra", "stored step"):
            printed(STEP)
        option = "--output" if kind == "stored step" else "-q --report"
        return folder / f"{kind}.html", printed(f"{KINDS[kind]} {option} '{kind}.html'")

    return page


def run_in(folder: Path, words: list[str]) -> str:
    """What a command prints that runs in a folder."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(printed):
        patched.chdir(folder)
        patched.setattr("sys.argv", ["stepsim", *words])
        cli.main()
    return printed.getvalue()


@pytest.fixture
def screen(chromium: Any) -> Iterator[Any]:
    """The browser, whose screen is as before when a test ends."""
    yield chromium
    emulate(chromium, "")
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def rows_of(shown: dict[str, Any]) -> int:
    """How many rows the timelines of an answer have."""
    return sum(len(run["lanes"]["rows"]) for run in (shown, *shown["others"]) if run["lanes"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_ink_and_fits(screen: Any, browse: Open, made: Made, kind: str) -> None:
    path, printed = made(kind)
    shown = answers_of(path.read_bytes())["shown"]
    assert path.stat().st_size < 300_000
    driver = browse(path)
    _, *said = driver.execute_script("return find('job-name').textContent").split(": ")
    assert any(each.partition(",")[0] in printed for each in said) or kind == "stored step"
    widths = [*WIDTHS]
    for scheme, paper in zip(("light", "dark"), PAPERS, strict=True):
        emulate(screen, scheme)
        for width in widths:
            resize(screen, width)
            driver.execute_async_script(FRAMES)
            assert driver.execute_script(WRONG) == []
            ink = driver.execute_script(INK)
            assert len(ink) == rows_of(shown)
            assert all(each and contrast(each, paper) >= 3 for each in ink)
        assert faint(driver, least=30) == []
        widths.reverse()  # what is drawn anew is so for the colours
    assert ink or driver.execute_script(FIGURES)
    assert (complaints(driver), requests(driver)) == ([], [])


def test_paper_is_light(screen: Any, browse: Open, made: Made) -> None:
    """A page that is dark on its screen is light while it is printed, and dark again then."""
    emulate(screen, "dark")
    driver = browse(made("text")[0])
    state = f"[getComputedStyle(document.body).backgroundColor, (() => {{ {INK} }})()]"
    driver.execute_script(f"addEventListener('beforeprint', () => {{ window.printed = {state}; }})")
    before = driver.execute_script(f"return {state}")
    sent = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(sent["data"]).startswith(b"%PDF")
    paper, ink = driver.execute_script("return window.printed")
    assert paper == "rgb(255, 255, 255)"
    assert all(contrast(each, PAPERS[0]) >= 3 for each in ink)
    driver.execute_async_script(FRAMES)
    assert driver.execute_script(f"return {state}") == before != [paper, ink]
