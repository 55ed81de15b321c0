"""Makes the screenshots of docs/reports.md and docs/guides/explorer.md:

`python docs/make_screenshots.py` (needs Chromium).
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars "
    "--window-size=1280,1400"
)
STEP = ["simulate", "workloads/gpt_1024.txt", "--topology", "hgx-h100", "-q"]
COMPARE = ["compare", *STEP[1:], "--schedules", "1f1b,interleaved:4,zb-v"]
SWEEP = ["sweep", *STEP[1:], "--set", "fabric.bandwidth=100..800 Gbps:16"]
SWEEP += ["--set", "nvlink.bandwidth=200..900 GB/s:12"]
MESSAGE = """
zoomTo(6.2e12, 6.55e12);
const { row, start, words } = page.shown.tasks, frame = find("timeline").getBoundingClientRect();
const isSent = (i) => row[i] === 7 && start[i] > 6.3e12 && words[i].startsWith("send");
const { left, top, wide, high } = page.boxes.find(({ task }) => task !== undefined && isSent(task));
return [frame.left + left + wide / 2, frame.top + top + high / 2].map(Math.round);
"""


def browser(profile: str) -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


def open_page(driver: Any, page: Path) -> None:
    driver.get(page.as_uri())
    wait_for(driver, "return document.documentElement.dataset.ready")
    time.sleep(0.5)


def wait_for(driver: Any, script: str) -> None:
    while not driver.execute_script(script):
        time.sleep(0.05)


def point_at_a_message(driver: Any) -> None:
    from selenium.webdriver import ActionChains

    x, y = driver.execute_script(MESSAGE)
    pointer = ActionChains(driver, duration=0)
    pointer.w3c_actions.pointer_action.move_to_location(x - 3, y)
    pointer.w3c_actions.pointer_action.move_to_location(x, y)
    pointer.perform()


def write(arguments: list[str], page: str, folder: str) -> Path:
    """A page by the name its command shows."""
    command = [sys.executable, "-c", "from stepsim.cli import main; main()", *arguments]
    if arguments[0] == "sweep":
        command += ["--db", f"{folder}/sweep.sqlite"]
    subprocess.run([*command, "--report", f"{folder}/{page}"], cwd=ROOT, check=True)
    return Path(folder) / page


def explorer(driver: Any) -> None:
    """1F1B pinned, interleaved above it, on one screen."""
    command = [sys.executable, "-c", "from stepsim.cli import main; main()", "serve"]
    command += ["--no-show", "--port", "0"]
    size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    done = "return document.documentElement.dataset.whole === String(page.number)"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(server.stdout.readline().split()[-1])
        wait_for(driver, "return document.documentElement.dataset.whole === '1'")
        driver.execute_script("document.getElementById('pin').click()")
        driver.execute_script(
            "const field = document.getElementById('schedule');"
            "field.value = 'interleaved:5'; field.dispatchEvent(new Event('change'))"
        )
        wait_for(driver, done)
        time.sleep(1)
        driver.save_screenshot(str(FIGURES / "explorer.png"))
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        server.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, browser(f"{folder}/profile") as driver:
        open_page(driver, write(STEP, "step.html", folder))
        driver.save_screenshot(str(FIGURES / "report_step.png"))
        point_at_a_message(driver)
        driver.save_screenshot(str(FIGURES / "report_task.png"))
        open_page(driver, write(COMPARE, "compare.html", folder))
        driver.save_screenshot(str(FIGURES / "report_compare.png"))
        open_page(driver, write(SWEEP, "sweep.html", folder))
        driver.save_screenshot(str(FIGURES / "report_sweep.png"))
        explorer(driver)


if __name__ == "__main__":
    main()
