"""The explorer as an instrument: one screen, all by keyboard, states that can be shared."""

import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from helpers import few
from serving import RememberedAnswers, running

import stepsim
from browser.looking import emulate, faint, resize, wait_for
from browser.test_explorer import SLIDE, answered, change, number, step_ps, text
from stepsim.serve.library import NamedNouns
from stepsim.serve.server import Service

REACHED = """
const seen = [], shown = (one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0;
for (const one of document.querySelectorAll("button, select, input, summary, canvas, [tabindex]")) {
  if (shown(one)) seen.push(one.id || one.textContent.trim());
}
return seen;
"""
ACTIVE = "const one = document.activeElement; return one.id || one.textContent.trim();"
OVERFLOWS = """
const parts = ["asked", "below", "picture"].map((id) => document.getElementById(id));
return [document.documentElement, ...parts]
  .filter((one) => one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth)
  .map((one) => `${one.id} ${one.scrollWidth} x ${one.scrollHeight}`);
"""
OUTLINED = """
const one = document.activeElement;
return one === document.body || getComputedStyle(one).outlineStyle !== "none";
"""
WHOLE_ACTIONS = """
return actionsOf(page.shown.lanes).filter(({ lane, shade }) => lane === 0 && shade < 2).length;
"""


@pytest.fixture(scope="module")
def answers() -> RememberedAnswers:
    return RememberedAnswers(library=NamedNouns())


@pytest.fixture(scope="module")
def address(answers: RememberedAnswers) -> Iterator[str]:
    yield from running(Service(explorer=answers))


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    """The page as it opens, on a screen of 1440 x 900."""
    resize(chromium, 1440)
    chromium.get("about:blank")
    chromium.get(address)
    answered(chromium)
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def state(driver: Any) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(driver.current_url).fragment))


def simulated(texts: dict[str, str]) -> int:
    """The step of a state in ps, as `simulate` gives it."""
    named: dict[str, Any] = {n: t for n, t in texts.items() if n not in ("workload", "topology")}
    return stepsim.simulate(texts["workload"], texts["topology"], **named).report.step_time_ps


def press(driver: Any, *keys: str) -> None:
    driver.switch_to.active_element.send_keys(*keys)


def focus(driver: Any, place: str) -> None:
    driver.execute_script("document.getElementById(arguments[0]).focus()", place)


def overflows(driver: Any) -> list[str]:
    """Parts of the page that would have to be scrolled."""
    return list(driver.execute_script(OVERFLOWS))


NARROW = """
const canvas = document.getElementById("timeline"), wide = canvas.width - LEFT - RIGHT;
const count = Math.round(wide / arguments[0]), every = [...Array(2 * count).keys()];
const spans = every.map((i) => ({
  row: 0, lane: 0, shade: i % 2, words: "0" + "FB"[i % 2] + (i >> 1), before: [],
  start: 3000 * (i >> 1) + 1000 * (i % 2), end: 3000 * (i >> 1) + (i % 2 ? 3000 : 1000),
}));
const lanes = { rows: ["stage 0"], spans, left_out: "" };
page.shown = { ...page.shown, step_ps: 3000 * count, lanes };
page.zoom = null;
drawTimeline();
const dots = canvas.getContext("2d").getImageData(LEFT, 30, wide, 1).data;
const parts = Array(40).fill(0);
for (let i = 0; i < wide; i++) parts[Math.floor(40 * i / wide)] += dots[4 * i] / (wide / 40);
return [parts, document.getElementById("under").textContent];
"""


@pytest.mark.parametrize("dots", [3.3, 2.02, 0.7])
def test_narrow_actions_are_mixed_by_their_time(page: Any, dots: float) -> None:
    """Equal microbatches, so many dots wide, look equal wherever on the screen they begin."""
    reds, said = page.execute_script(NARROW, dots)
    assert max(reds) - min(reds) < 25
    assert ("mixed colours" in said) == (dots < 3)


def test_it_opens_with_a_job_that_fits(page: Any) -> None:
    assert step_ps(page) == simulated(state(page))
    assert "does not fit" not in text(page, "answer")
    assert page.execute_script("return page.shown.lanes.rows.length") > 1
    assert text(page, "problem") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_screen_has_all_of_it(page: Any, scheme: str) -> None:
    emulate(page, scheme)
    wait_for(lambda: not overflows(page))
    page.find_element("id", "pin").click()
    change(page, lambda: page.execute_script("slideTo({schedule: 'interleaved:5'})"))
    assert not overflows(page)
    page.find_element("id", "show-speeds").click()
    wait_for(lambda: "Step: blue" in text(page, "map-words"))
    assert not overflows(page)
    seen = page.find_elements("css selector", "#answer, #asked, #picture, #below, #lines")
    assert all(one.rect["y"] >= 0 and one.rect["y"] + one.rect["height"] <= 900 for one in seen)


WIDTHS = 360, 420, 600, 767, 768, 1000, 1199, 1200


@pytest.mark.parametrize("width", few(WIDTHS, 420, 768))
def test_no_width_scrolls_sideways(page: Any, width: int) -> None:
    resize(page, width)
    wait_for(lambda: page.execute_script("return document.documentElement.scrollWidth") <= width)
    columns = page.execute_script(
        "return new Set(['asked', 'picture', 'below'].map((id) => "
        "Math.round(document.getElementById(id).getBoundingClientRect().left))).size"
    )
    assert (columns == 1) == (width < 768)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_and_mark_stands_out(page: Any, scheme: str) -> None:
    emulate(page, scheme)
    page.find_element("id", "pin").click()
    change(page, lambda: page.execute_script("slideTo({schedule: 'interleaved:5', npus: '64'})"))
    assert faint(page, least=80) == []


def test_the_keyboard_reaches_every_control(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    for place in ("more-speeds", "all-options", "uploads"):
        page.execute_script("document.getElementById(arguments[0]).open = true", place)
    wanted, reached = set(page.execute_script(REACHED)), set()
    assert {"pin", "slide-npus", "schedule", "timeline", "show-speeds", "command"} <= wanted
    page.execute_script("document.activeElement.blur()")
    for _ in range(2 * len(wanted)):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.execute_script(ACTIVE))
        assert page.execute_script(OUTLINED)
    assert wanted - reached == set()


def test_sliders_move_by_arrow_keys_and_undo_takes_back(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    first, before = state(page), step_ps(page)
    focus(page, "slide-tp")
    change(page, lambda: press(page, Keys.ARROW_RIGHT))
    assert state(page) == {**first, "tp": "8"}
    assert step_ps(page) == simulated(state(page))
    focus(page, "slide-npus")
    change(page, lambda: press(page, Keys.ARROW_LEFT))
    assert state(page) == {**first, "tp": "8", "npus": "64"}
    change(page, lambda: press(page, Keys.CONTROL, "z"))
    assert state(page) == {**first, "tp": "8"}
    change(page, lambda: page.find_element("id", "undo").click())
    assert (state(page), step_ps(page)) == (first, before)
    assert page.execute_script("return document.getElementById('undo').disabled")
    shown = "const one = document.getElementById('slide-tp'); return one.values[one.value]"
    assert page.execute_script(shown) == 4


def test_a_link_holds_the_state_and_the_pin(page: Any) -> None:
    pinned = step_ps(page)
    page.find_element("id", "pin").click()
    change(page, lambda: page.execute_script("slideTo({schedule: 'zb-h1'})"))
    shown, link, facts = step_ps(page), page.current_url, text(page, "facts")
    page.get("about:blank")
    page.get(link)
    answered(page)
    assert (step_ps(page), page.current_url, text(page, "facts")) == (shown, link, facts)
    assert page.execute_script("return page.pin.step_ps") == pinned
    assert page.execute_script("return page.scale.longest") == max(shown, pinned)


def test_a_plan_is_chosen_on_the_map(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    cell = page.find_element("css selector", "#plans [aria-label^='tp 8, pp 4:']")
    change(page, cell.click)
    assert (state(page)["tp"], state(page)["pp"]) == ("8", "4")
    assert step_ps(page) == simulated(state(page))
    current = page.find_element("css selector", "#plans [aria-current]")
    page.execute_script("arguments[0].focus()", current)
    press(page, Keys.ARROW_DOWN)
    assert page.execute_script("return document.activeElement.ariaLabel").startswith("tp 8, pp 8:")
    change(page, lambda: press(page, Keys.ENTER))
    assert (state(page)["tp"], state(page)["pp"]) == ("8", "8")
    assert page.execute_script("return document.querySelectorAll('#plans .large').length")


def test_what_would_help_is_done_by_a_click(page: Any) -> None:
    row = page.find_element("css selector", "#helps-list button")
    said, before = row.text, step_ps(page)
    change(page, row.click)
    assert step_ps(page) < before
    assert said.startswith(f"schedule {state(page)['schedule']}")


def test_zoom_shows_tasks_and_a_task_lights_its_links(page: Any) -> None:
    focus(page, "timeline")
    page.execute_script("zoomTo(0.3 * page.scale.longest, 0.34 * page.scale.longest)")
    wait_for(lambda: page.execute_script("return page.shown.tasks?.spans.length"))
    assert page.execute_script("return page.boxes.some(({ span }) => !span.spans)")
    press(page, ".")
    press(page, ".")
    lit = "return [...document.querySelectorAll('.loads .lit')].map((row) => row.dataset.link)"
    assert page.execute_script(lit) == ["nvlink"]
    assert "Waits for" in text(page, "tip")
    assert page.execute_script("return document.querySelectorAll('#network svg .lit').length")
    page.execute_script("document.activeElement.blur()")
    assert page.execute_script(lit) == []


def test_the_timeline_begins_with_whole_actions(page: Any) -> None:
    """One box for each action of the schedule, whatever segments it has."""
    stages, microbatches = 8, 32
    assert page.execute_script(WHOLE_ACTIONS) == 2 * stages * microbatches


def test_the_map_of_speeds_has_ticks(page: Any) -> None:
    page.find_element("id", "show-speeds").click()
    wait_for(lambda: "Step: blue" in text(page, "map-words"))
    said = page.find_element("id", "map-cells").get_attribute("aria-label")
    assert said.startswith("nvlink.bandwidth across, fabric.bandwidth up")


def test_answers_come_soon(page: Any, answers: RememberedAnswers) -> None:
    """Printed, and held to ten times what is wanted, so that a busy machine does not fail it."""
    answers.known.clear()
    plans = page.execute_script("return document.getElementById('slide-pp').values.length")
    plan = page.execute_async_script(SLIDE, "slide-pp", [0, plans - 3, 1, 2])
    answered(page)
    speed = page.execute_async_script(SLIDE, "slider-fabric.bandwidth", [*range(-46, 27, 8)])
    for what, took, most in (("plan", plan, 300), ("speed", speed, 50)):
        print(f"{what}: median {statistics.median(took):.0f} ms, most {max(took):.0f} ms")
        assert statistics.median(took) < 10 * most


def test_questions_of_the_page_are_numbered(page: Any) -> None:
    before: int = number(page)
    act: Callable[[], object] = page.find_element("id", "reset").click
    change(page, act)
    assert number(page) > before
    assert json.loads(page.execute_script("return JSON.stringify(page.state)")) == state(page)
