"""The explorer in a browser, by mouse and by keyboard, against a real server."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from serving import running

import stepsim
from browser.looking import complaints, requests, wait_for
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.server import Service

WORKLOADS = Path(__file__).parents[2] / "workloads"
GPT = "gpt_1024.txt"
SLIDE = """
const [id, notches, done] = arguments, field = document.getElementById(id), took = [];
const seen = () => document.getElementById("step-time").dataset.ps;
function slide(i) {
  const before = seen(), began = performance.now();
  field.value = notches[i];
  field.dispatchEvent(new Event("input"));
  function look() {
    if (seen() === before) return requestAnimationFrame(look);
    took.push(performance.now() - began);
    if (i + 1 < notches.length) slide(i + 1); else done(took);
  }
  look();
}
slide(0);
"""

ASK = """
const [address, body, done] = arguments, headers = {"X-Stepsim": "1"};
fetch(address, {method: "POST", body, headers}).then((reply) => reply.text(), (error) => error.name)
  .then((first) => fetch(address, {method: "POST", body, mode: "no-cors"})
    .then((reply) => done([first, reply.type]), (error) => done([first, error.name])));
"""


@pytest.fixture(scope="module")
def service() -> Service:
    library = NamedNouns()
    for name in (GPT, "moe_128.txt"):
        library.open(WORKLOADS / name)
    return Service(explorer=Explorer(library=library))


@pytest.fixture(scope="module")
def address(service: Service) -> Iterator[str]:
    yield from running(service)


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get("about:blank")
    chromium.get(address)
    answered(chromium)
    yield chromium
    chromium.set_window_size(1280, 1000)


def number(driver: Any) -> int:
    return int(driver.execute_script("return page.number"))


def answered(driver: Any) -> None:
    """Wait until the newest question has its whole answer."""
    last = "document.documentElement.dataset.whole === String(page.number) && page.number > 0"
    wait_for(lambda: driver.execute_script(f"return typeof page !== 'undefined' && {last}"), 60)


def text(driver: Any, place: str) -> str:
    return str(driver.execute_script(f"return document.getElementById('{place}').textContent"))


def step_ps(driver: Any) -> int:
    return int(driver.execute_script("return document.getElementById('step-time').dataset.ps"))


def change(driver: Any, act: Callable[[], object]) -> None:
    before = number(driver)
    act()
    wait_for(lambda: number(driver) > before)
    answered(driver)


def set_to(driver: Any, place: str, value: str) -> None:
    """Type into a field and leave it."""
    from selenium.webdriver.common.keys import Keys

    driver.execute_script("document.getElementById('all-options').open = true")
    field = driver.find_element("id", place)
    field.clear()
    field.send_keys(value, Keys.TAB)


def settle(driver: Any, place: str, value: str) -> None:
    """Type into a field and wait for an answer, which may be a mistake's."""
    before = number(driver)
    set_to(driver, place, value)
    done = "return document.documentElement.dataset.answered === String(page.number)"
    wait_for(lambda: number(driver) > before and driver.execute_script(done))


def test_a_workload_is_simulated(page: Any) -> None:
    from selenium.webdriver.support.ui import Select

    assert step_ps(page) == stepsim.simulate(WORKLOADS / GPT, "hgx-h100").report.step_time_ps
    choose = Select(page.find_element("id", "workload"))
    change(page, lambda: choose.select_by_value("moe_128.txt"))
    expected = stepsim.simulate(WORKLOADS / "moe_128.txt", "hgx-h100").report
    assert step_ps(page) == expected.step_time_ps
    assert f"{expected.bubble_fraction:.1%}" in text(page, "facts")
    assert "What" not in text(page, "problem")
    wait_for(lambda: text(page, "status") == "ready")
    whole = "return document.documentElement.dataset.whole === String(page.number)"
    assert page.execute_script(whole), "ready only where all panels show this step"
    assert not complaints(page)


def test_by_keyboard_alone(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.find_element("id", "workload").send_keys("moe")
    answered(page)
    field = page.find_element("id", "schedule")
    change(page, lambda: field.send_keys("zb-h1", Keys.TAB))
    expected = stepsim.simulate(WORKLOADS / "moe_128.txt", "hgx-h100", schedule="zb-h1").report
    assert step_ps(page) == expected.step_time_ps
    before = step_ps(page)
    slider = page.find_element("id", "slider-fabric.bandwidth")
    change(page, lambda: slider.send_keys(Keys.ARROW_LEFT * 20))
    assert step_ps(page) > before
    timeline = page.find_element("id", "timeline")
    timeline.send_keys("+")
    assert page.execute_script("return page.zoom[1] - page.zoom[0] < page.scale.longest")
    timeline.send_keys(Keys.ESCAPE)
    assert page.execute_script("return page.zoom") is None
    pin = page.find_element("id", "pin")
    pin.send_keys(Keys.ENTER)
    assert "as pinned" in text(page, "facts")


def test_a_bandwidth_slides_and_the_step_follows(page: Any) -> None:
    """From 100 to 800 Gbps; every answer is the engine's, and the address repeats the last."""
    took = page.execute_async_script(SLIDE, "slider-fabric.bandwidth", [-53, *range(-46, 27, 8)])
    assert len(took) == 11
    print(f"input to paint: median {statistics.median(took):.0f} ms of {len(took)}")
    answered(page)
    slowest, fastest = [
        stepsim.simulate(
            WORKLOADS / GPT,
            stepsim.load_topology("hgx-h100", numbers={"fabric.bandwidth": bandwidth}),
        ).report.step_time_ps
        for bandwidth in ("100 Gbps", "800 Gbps")
    ]
    assert fastest < step_ps(page) < slowest
    asked = dict(parse_qsl(urlsplit(page.current_url).fragment))
    network = stepsim.load_topology(
        "hgx-h100", numbers={"fabric.bandwidth": asked["fabric.bandwidth"]}
    )
    assert step_ps(page) == stepsim.simulate(WORKLOADS / GPT, network).report.step_time_ps
    assert asked["fabric.bandwidth"] in text(page, "command")
    shown = step_ps(page)
    link = page.current_url
    page.get("about:blank")
    page.get(link)
    answered(page)
    assert step_ps(page) == shown


def test_two_schedules_pinned_and_compared(page: Any) -> None:
    page.find_element("id", "pin").click()
    change(page, lambda: set_to(page, "option-schedule", "interleaved:4"))
    plain, mixed = (
        stepsim.simulate(WORKLOADS / GPT, "hgx-h100", schedule=name).report.step_time_ps
        for name in ("1f1b", "interleaved:4")
    )
    assert step_ps(page) == mixed
    assert f"\N{MINUS SIGN}{(1 - mixed / plain) * 100:.1f}%" in text(page, "facts")
    assert "since pin" in text(page, "facts")
    assert "pinned=workload" in page.current_url
    longest = page.execute_script("return page.scale.longest")
    assert longest == max(plain, mixed)
    page.find_element("id", "unpin").click()
    assert "since pin" not in text(page, "facts")


def test_a_model_is_simulated_pinned_and_split_otherwise(page: Any, address: str) -> None:
    page.get("about:blank")
    page.get(
        f"{address}#workload=llama-3.2-1b&topology=hgx-h100&npus=16&tp=1&dp_overlap=off&noise.compute=0.1"
    )
    answered(page)
    asked: dict[str, Any] = {"npus": 16, "dp_overlap": False}  # with it noise is no column
    plain, split = (
        stepsim.simulate("llama-3.2-1b", "hgx-h100", tp=tp, **asked).report for tp in (1, 2)
    )
    assert step_ps(page) == plain.step_time_ps
    assert plain.throughput
    assert split.throughput
    assert f"{plain.throughput.mfu:.1%}" in text(page, "facts")
    assert "with noise" in text(page, "band")
    assert "of 80 GiB" in text(page, "memory-text")
    page.find_element("id", "pin").click()
    change(page, lambda: set_to(page, "option-tp", "2"))
    assert step_ps(page) == split.step_time_ps
    points = 100 * (split.throughput.mfu - plain.throughput.mfu)
    assert f"{abs(points):.1f} points" in text(page, "facts")
    held, before = split.throughput.memory_bytes, plain.throughput.memory_bytes
    assert held
    assert before
    assert f"{abs(100 * (held / before - 1)):.1f}%" in text(page, "facts")


def test_an_uploaded_run_is_shown_as_it_ran(page: Any) -> None:
    run = WORKLOADS / "measured" / "llama_pp8_a40.txt"
    page.execute_script("document.getElementById('uploads').open = true")
    before = number(page)
    page.find_element("id", "upload-workload").send_keys(str(run))
    done = "return document.documentElement.dataset.answered === String(page.number)"
    wait_for(lambda: number(page) > before and page.execute_script(done))
    assert step_ps(page) == stepsim.simulate_run(run).report.step_time_ps
    assert "as it ran" in text(page, "as-it-is")
    seen = [page.find_element("id", each) for each in ("speeds", "links", "timeline")]
    assert [each.is_displayed() for each in seen] == [False, False, True]
    page.execute_script("pin({ ...page.shown, asked: page.state }); pin(null)")
    set_back = "const s = document.getElementById('workload'); s.value = arguments[0];"
    fire = "s.dispatchEvent(new Event('change'))"
    change(page, lambda: page.execute_script(set_back + fire, GPT))
    assert [each.is_displayed() for each in seen] == [True, True, True]


def test_crashes_other_pages_and_closed_tabs(
    page: Any, address: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash is said, work of a tab that closes ends, a page of another origin learns nothing."""
    begun, ended = Event(), Event()

    def crash(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    def endless(*_: object) -> None:
        begun.set()
        try:
            while not ended.wait(0.01):
                continue
        finally:
            ended.set()

    first = page.current_window_handle
    with monkeypatch.context() as patched:
        patched.setattr(Explorer, "shown", crash)
        settle(page, "option-microbatches", "24")
        assert text(page, "problem") == "ZeroDivisionError: on purpose"
        patched.setattr(Explorer, "shown", endless)
        page.switch_to.new_window("tab")
        page.get(address)
        assert begun.wait(60)
        page.close()
        page.switch_to.window(first)
        assert ended.wait(60)
    change(page, lambda: set_to(page, "option-microbatches", "16"))
    assert text(page, "problem") == ""
    page.get("data:text/html,<p>another page")
    question = {"kind": "choices", "tab": "thief", "number": 1}
    stolen = page.execute_async_script(ASK, f"{address}answer", json.dumps(question))
    assert stolen[0] == "TypeError"


# a question is stopped by an exception in its thread, which may leave a folder open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_many_changes_end_in_the_last(page: Any) -> None:
    page.execute_async_script(
        """const done = arguments[0], s = document.getElementById("option-microbatches");
        let i = 0;
        const timer = setInterval(() => {
          s.value = String(16 + i++ % 7);
          s.dispatchEvent(new Event("change"));
          if (i === 50) { clearInterval(timer); done(); }
        }, 40);"""
    )
    answered(page)
    expected = stepsim.simulate(WORKLOADS / GPT, "hgx-h100", microbatches=16).report
    assert page.execute_script("return page.state.microbatches") == "16"
    assert step_ps(page) == expected.step_time_ps
    assert not page.execute_script("return document.querySelectorAll('.stale').length")


def test_tabs_do_not_disturb_each_other(page: Any, address: str) -> None:
    first = page.current_window_handle
    shown = step_ps(page)
    page.switch_to.new_window("tab")
    page.get(f"{address}#workload=moe_128.txt&topology=hgx-h100")
    answered(page)
    other = step_ps(page)
    page.close()
    page.switch_to.window(first)
    assert (step_ps(page), other != shown) == (shown, True)
    change(page, lambda: set_to(page, "option-microbatches", "32"))
    expected = stepsim.simulate(WORKLOADS / GPT, "hgx-h100", microbatches=32).report
    assert step_ps(page) == expected.step_time_ps


def test_a_mistake_is_said_and_the_page_lives(page: Any) -> None:
    settle(page, "option-schedule", "<img src=x onerror=window.owned=1>")
    assert "schedule is '<img src=x onerror=window.owned=1>'" in text(page, "problem")
    settle(page, "option-schedule", "1f1b")
    assert text(page, "problem") == ""
    assert not page.execute_script("return window.owned || document.querySelector('img')")
    assert step_ps(page) == stepsim.simulate(WORKLOADS / GPT, "hgx-h100").report.step_time_ps


def test_an_upload_with_a_hostile_name_runs_nothing(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "x' onerror=window.owned=1 <b>.txt"
    path.write_bytes((WORKLOADS / "gpt_tp4.txt").read_bytes())
    page.execute_script("document.getElementById('uploads').open = true")
    change(page, lambda: page.find_element("id", "upload-workload").send_keys(str(path)))
    assert step_ps(page) == stepsim.simulate(path, "hgx-h100").report.step_time_ps
    assert not page.execute_script("return window.owned || document.querySelector('b')")


def test_every_control_has_a_name(page: Any) -> None:
    unnamed = page.execute_script(
        """return [...document.querySelectorAll("input, select, button, canvas, [role=img]")]
        .filter((each) => !(each.closest("label") || each.getAttribute("aria-label")
        || each.textContent.trim())).map((each) => each.outerHTML)"""
    )
    assert unnamed == []


def test_nothing_leaves_the_machine(page: Any, address: str) -> None:
    sent = requests(page)
    assert sent
    assert [url for url in sent if not url.startswith(address)] == []
