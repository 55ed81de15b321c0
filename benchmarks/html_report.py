"""How long a page of 100,000 spans takes to open: stepsim's, and plain ones of plotting libraries.

`python benchmarks/html_report.py [library ...]` prints, for each, the seconds to write the page,
its size, and the seconds from asking headless Chromium for it until everything is drawn (median of
three). Libraries: stepsim, bokeh, bokeh-webgl, plotly-bars, plotly-webgl.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sizes import arguments, sized

ROOT = Path(__file__).resolve().parents[1]
LANES = 80
SPANS, OPENED, MICROBATCHES = sized((100_000, 3, 42), (800, 1, 16))
PALETTE = ["#4477aa", "#ee9944", "#bb3344", "#66c2a5", "#662266", "#444444"]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --window-size=1280,1000"
)
DRAWN = """
const done = arguments[0];
const drawn = () => {
  if (document.getElementById("page-data")) return document.documentElement.dataset.ready;
  if (window.Bokeh) return Bokeh.documents.length && Bokeh.documents[0].is_idle;
  const plot = document.querySelector(".js-plotly-plot");
  return plot && plot.calcdata && plot.querySelector(".main-svg");
};
const look = () => drawn() ? requestAnimationFrame(() => requestAnimationFrame(done))
  : setTimeout(look, 10);
look();
"""


def spans() -> tuple[Any, Any, Any, Any]:
    """Start, end, lane and colour number of spans without gaps."""
    random = np.random.default_rng(0)
    lengths = random.exponential(1, (LANES, SPANS // LANES))
    end = np.cumsum(lengths, axis=1)
    lane = np.repeat(np.arange(LANES), SPANS // LANES)
    return (end - lengths).ravel(), end.ravel(), lane, random.integers(0, len(PALETTE), SPANS)


def bokeh(path: Path, backend: str = "canvas") -> None:
    from bokeh.embed import file_html
    from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper
    from bokeh.plotting import figure
    from bokeh.resources import INLINE

    start, end, lane, colour = spans()
    plot = figure(sizing_mode="stretch_width", height=700, output_backend=backend)
    source = ColumnDataSource(
        {"left": start, "right": end, "low": lane, "high": lane + 0.8, "colour": colour}
    )
    mapper = LinearColorMapper(palette=PALETTE, low=-0.5, high=len(PALETTE) - 0.5)
    plot.quad(
        left="left", right="right", bottom="low", top="high", source=source, line_color=None,
        fill_color={"field": "colour", "transform": mapper},
    )  # fmt: skip
    plot.add_tools(HoverTool(tooltips=[("start", "@left"), ("end", "@right")]))
    path.write_text(file_html(plot, INLINE, "spans"))


def plotly(path: Path, *, webgl: bool) -> None:
    import plotly.graph_objects as go

    start, end, lane, colour = spans()
    plot = go.Figure()
    for number, name in enumerate(PALETTE):
        mine = colour == number
        x, y = np.full(3 * mine.sum(), np.nan), np.repeat(lane[mine], 3)
        x[0::3], x[1::3] = start[mine], end[mine]
        if webgl:
            plot.add_scattergl(x=x, y=y, mode="lines", line={"color": name, "width": 6})
        else:
            plot.add_bar(
                base=start[mine], x=(end - start)[mine], y=lane[mine], orientation="h",
                marker={"color": name, "line": {"width": 0}},
            )  # fmt: skip
    plot.update_layout(barmode="overlay")
    plot.write_html(path)


def stepsim_page(path: Path) -> None:
    import stepsim
    from stepsim.files.asked import read_inputs
    from stepsim.show.page.write import find_what_if, write_step

    workload, options = ROOT / "workloads" / "gpt_1024.txt", {"microbatches": MICROBATCHES}
    result = stepsim.simulate(workload, "hgx-h100", microbatches=MICROBATCHES)
    found = find_what_if(read_inputs(workload, "hgx-h100", options))
    write_step(result, path, command="benchmark", what_if=found)
    print(f"stepsim's page holds {sum(map(len, result.timeline.spans())):,} spans")


LIBRARIES: dict[str, Callable[[Path], None]] = {
    "stepsim": stepsim_page,
    "bokeh": bokeh,
    "bokeh-webgl": lambda path: bokeh(path, "webgl"),
    "plotly-bars": lambda path: plotly(path, webgl=False),
    "plotly-webgl": lambda path: plotly(path, webgl=True),
}


def seconds_to_open(path: Path, folder: str) -> float:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    times = []
    with webdriver.Chrome(options=options, service=service) as driver:
        driver.set_script_timeout(300)
        for _ in range(OPENED):
            driver.get("about:blank")
            began = time.perf_counter()
            driver.get(path.as_uri())
            driver.execute_async_script(DRAWN)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    print(f"{'page':<14}{'write s':>9}{'MB':>8}{'open s':>9}")
    for name in arguments() or sized([*LIBRARIES], ["stepsim", "bokeh"]):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            began = time.perf_counter()
            LIBRARIES[name](path)
            wrote = time.perf_counter() - began
            size = path.stat().st_size / 1e6
            browser = shutil.which("chromedriver") or sized(True, False)
            opened = seconds_to_open(path, f"{folder}/profile") if browser else float("nan")
            print(f"{name:<14}{wrote:9.2f}{size:8.2f}{opened:9.2f}", flush=True)


if __name__ == "__main__":
    main()
