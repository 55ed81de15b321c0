"""A headless Chromium, where there is one."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto_ui import FLAGS

Open = Callable[[Path], Any]
"""Opens a page, waits until its figures are drawn, and returns selenium's driver."""

_DRAWN = "return document.documentElement.dataset.ready"
_PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(programs):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (
        *FLAGS,
        "--window-size=1280,1000",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=programs[1])
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def browse(chromium: Any) -> Open:
    def open_page(path: Path) -> Any:
        for log in ("browser", "performance"):
            chromium.get_log(log)
        chromium.get(path.as_uri())
        until = time.monotonic() + _PATIENCE_S
        while not chromium.execute_script(_DRAWN):
            assert time.monotonic() < until, chromium.get_log("browser")
            time.sleep(0.05)
        return chromium

    return open_page
