"""Pages in a browser: what is drawn, zoomed and said under the pointer is what was simulated."""

import json
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import rows_of, stream_words

import stepsim
from browser.conftest import Open
from stepsim.base.structs import replace
from stepsim.face.results import Result
from stepsim.face.steps import compare
from stepsim.run.spans import Span
from stepsim.show.page.write import write_comparison, write_step

WORKLOAD = Path(__file__).parents[2] / "workloads" / "moe_128.txt"
EVIL = "</script><img src=x onerror=window.owned=1><script>window.owned=1</script>"
PS = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
SPANS = """
const figure = Bokeh.documents[0].get_model_by_name("timeline-0");
const view = Bokeh.index.find_one(figure);
const glyph = figure.renderers.find((each) => each.name === "spans");
const data = glyph.data_source.data;
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return stepsim.simulate(WORKLOAD, "hgx-h100")


@pytest.fixture(scope="module")
def page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "step.html"
    write_step(result, path, command="stepsim simulate", what_if="not asked")
    return path


def complaints(driver: Any) -> list[str]:
    return [each["message"] for each in driver.get_log("browser") if each["level"] != "INFO"]


def requests(driver: Any) -> list[str]:
    """Addresses asked for since the page was opened, the page itself left out."""
    events = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    return [url for url in sent if not url.startswith(("file:", "data:", "blob:", "chrome:"))]


def wait_for(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.05)
    return found


def picoseconds(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number) * PS[unit or "ps"]


def tip(driver: Any) -> tuple[str, dict[str, str]]:
    """Heading and pairs of the tooltip; of several pairs of a name, the first."""
    box = driver.find_element("id", "tip")
    names = [each.text for each in box.find_elements("tag name", "dt")]
    values = [each.text for each in box.find_elements("tag name", "dd")]
    pairs = dict(zip(reversed(names), reversed(values), strict=True))
    return box.find_element("tag name", "strong").text, pairs


def point_at(driver: Any, number: int) -> None:
    """Zoom to a span and move the pointer over its middle."""
    from selenium.webdriver import ActionChains

    place = driver.find_element("id", "timeline-0")
    driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", place)
    driver.execute_async_script(
        SPANS + "const [i, done] = arguments, [a, b] = [data.left[i], data.right[i]];"
        "figure.x_range.setv({start: a - (b - a), end: b + (b - a)});"
        "requestAnimationFrame(() => requestAnimationFrame(done));",
        number,
    )
    x, y = driver.execute_script(
        SPANS + "const i = arguments[0], box = arguments[1].getBoundingClientRect();"
        "const x = view.frame.x_scale.compute((data.left[i] + data.right[i]) / 2);"
        "const y = view.frame.y_scale.compute((data.low[i] + data.high[i]) / 2);"
        "return [box.left + x, box.top + y].map(Math.round);",
        number,
        place,
    )
    pointer: Any = ActionChains(driver, duration=0)
    pointer.w3c_actions.pointer_action.move_to_location(x - 3, y)
    pointer.w3c_actions.pointer_action.move_to_location(x, y)
    pointer.perform()


def some_of_each_kind(spans: Sequence[Span]) -> dict[int, Span]:
    """A span of every kind on every stream, from the middle of the step."""
    found: dict[tuple[int, int], tuple[int, Span]] = {}
    middle = spans[-1].end_ps // 2
    for i, span in sorted(enumerate(spans), key=lambda each: abs(each[1].start_ps - middle)):
        if span.end_ps > span.start_ps:
            found.setdefault((span.kind, span.stream), (i, span))
    return dict(found.values())


def test_every_span_is_drawn_and_nothing_is_complained_of(
    browse: Open, page: Path, result: Result
) -> None:
    driver = browse(page)
    spans = list(rows_of(result.timeline))
    drawn = driver.execute_script(SPANS + "return view.views.find_one(glyph).glyph.data_size;")
    assert drawn == len(spans)
    assert driver.title == "moe_128.txt on hgx-h100"
    assert complaints(driver) == []
    assert requests(driver) == []


def test_the_tooltip_says_what_the_timeline_holds(browse: Open, page: Path, result: Result) -> None:
    driver = browse(page)
    chosen = some_of_each_kind(list(rows_of(result.timeline)))
    assert len(chosen) > 5
    for number, span in chosen.items():
        point_at(driver, number)
        wait_for(lambda: driver.find_element("id", "tip").is_displayed())
        heading, pairs = wait_for(partial(_tip_of, driver, span))
        assert pairs["Stream"] == stream_words(span)
        assert pairs["Rank"].startswith(str(span.rank))
        assert picoseconds(pairs["End"]) == pytest.approx(span.end_ps, rel=1e-6, abs=1)
        assert picoseconds(pairs["Duration"]) == pytest.approx(
            span.end_ps - span.start_ps, rel=1e-6, abs=1
        )
        assert ("Bytes" in pairs) == ("Algorithm" in pairs) == bool(span.size_bytes)
        if span.entry:
            assert span.entry.token in pairs["Action"]
        waited = re.findall(r"ends at ([\d.e-]+ \w+|0)$", pairs["Waits for"])
        assert all(picoseconds(end) <= span.start_ps * (1 + 1e-6) + 1 for end in waited)
        assert heading
    assert complaints(driver) == []


def _tip_of(driver: Any, span: Span) -> tuple[str, dict[str, str]] | None:
    """The tooltip once it is that of a span."""
    heading, pairs = tip(driver)
    start = picoseconds(pairs["Start"]) if "Stream" in pairs else -1.0
    return (heading, pairs) if start == pytest.approx(span.start_ps, rel=1e-6, abs=1) else None


def test_keys_zoom_move_and_walk_the_critical_path(
    browse: Open, page: Path, result: Result
) -> None:
    driver = browse(page)
    place = driver.find_element("id", "timeline-0")

    def shown() -> tuple[float, float]:
        start, end = driver.execute_script(
            SPANS + "return [figure.x_range.start, figure.x_range.end];"
        )
        return start, end

    whole = shown()
    place.send_keys("+")
    near = wait_for(lambda: shown() if shown() != whole else None)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    place.send_keys("\ue014")  # arrow right
    assert wait_for(lambda: shown()[0] > near[0])
    place.send_keys("0")
    assert wait_for(lambda: shown() == whole)
    place.send_keys("n")
    first = wait_for(lambda: tip(driver) if driver.find_element("id", "tip").is_displayed() else 0)
    assert first[1]["Critical path"] == "yes"
    assert first[1]["Start"] == "0"
    place.send_keys("n")
    second = wait_for(lambda: tip(driver) if tip(driver) != first else None)
    assert second[1]["Start"] == first[1]["End"]
    assert complaints(driver) == []


def test_dragging_zooms_and_the_critical_path_stands_out(browse: Open, page: Path) -> None:
    from selenium.webdriver import ActionChains

    driver = browse(page)
    place = driver.find_element("id", "timeline-0")
    width = SPANS + "return figure.x_range.end - figure.x_range.start;"
    before = driver.execute_script(width)
    driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", place)
    drag = ActionChains(driver).move_to_element_with_offset(place, -100, 0).click_and_hold()
    drag.move_by_offset(80, 2).move_by_offset(80, 2).release().perform()
    assert wait_for(lambda: driver.execute_script(width) < before / 3)
    driver.find_element("id", "ask-path").send_keys(" ")
    assert driver.execute_script(SPANS + "return glyph.glyph.fill_alpha.value;") < 0.5
    assert complaints(driver) == []


LANES = """
const shown = (name) => figure.renderers.find((each) => each.name === name).visible;
const axes = figure.left.filter((each) => each.visible).map((each) => each.name);
return [shown("spans"), shown("path-edge"), axes.includes("bands-lanes"), figure.height];
"""


def test_actions_come_first_and_lanes_on_zoom_or_when_asked_for(browse: Open, page: Path) -> None:
    driver = browse(page)
    place = driver.find_element("id", "timeline-0")

    def lanes() -> list[Any]:
        found: list[Any] = driver.execute_script(SPANS + LANES)
        return found

    def rows() -> list[float]:
        found: list[float] = driver.execute_script(
            SPANS + "return ['idle', 'actions', 'outside'].map((name) => Math.max(..."
            "figure.renderers.find((each) => each.name === name).data_source.data.high));"
        )
        return found

    *seen, height = lanes()
    assert seen == [False, False, False]
    bottom = rows()
    assert len(set(bottom)) == 1
    place.send_keys("l")
    *seen, taller = wait_for(lambda: lanes() if lanes()[0] else None)
    assert seen == [True, True, True]
    assert taller > height
    assert len(set(rows())) == 1
    assert rows()[0] > bottom[0]
    assert driver.find_element("id", "ask-lanes").is_selected()
    driver.find_element("id", "ask-lanes").send_keys(" ")
    assert wait_for(lambda: not lanes()[0])
    assert rows() == pytest.approx(bottom, rel=1e-5)
    for _ in range(3):
        place.send_keys("+")
    assert wait_for(lambda: lanes()[0])
    place.send_keys("0")
    assert wait_for(lambda: not lanes()[0])
    assert complaints(driver) == []


def test_what_was_assumed_is_opened_by_keyboard(browse: Open, page: Path) -> None:
    driver = browse(page)
    inside = driver.find_element("css selector", "#assumptions li")
    assert not inside.is_displayed()
    driver.find_element("css selector", "#assumptions summary").send_keys(" ")
    assert inside.is_displayed()
    pressed = "return document.querySelectorAll('[onclick], [tabindex=\"-1\"]').length"
    assert driver.execute_script(pressed) == 0


def test_names_run_nothing(browse: Open, result: Result, tmp_path: Path) -> None:
    comms = tuple(replace(use, algorithms=(EVIL,)) for use in result.report.comms)
    links = tuple(replace(link, name=EVIL, busiest=EVIL) for link in result.report.links)
    report = replace(
        result.report, workload=EVIL, topology=EVIL, comms=comms, links=links, warnings=(EVIL,)
    )
    path = tmp_path / "evil.html"
    evil = replace(result, report=report)
    write_step(evil, path, command=EVIL, what_if=EVIL)
    driver = browse(path)
    spans = list(rows_of(result.timeline))
    number = next(i for i, span in enumerate(spans) if span.size_bytes)
    point_at(driver, number)
    _, pairs = wait_for(lambda: _tip_of(driver, spans[number]))
    assert pairs["Algorithm"] == EVIL
    assert driver.title == f"{EVIL} on {EVIL}"
    assert driver.execute_script("return window.owned === undefined;")
    assert driver.find_elements("tag name", "img") == []
    assert complaints(driver) == []


def test_the_policy_stops_scripts_that_do_get_in(browse: Open, page: Path) -> None:
    driver = browse(page)
    driver.execute_script(
        "const made = document.createElement('script'); made.textContent = 'window.owned = 1';"
        "document.body.append(made);"
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned=1\">');"
    )
    time.sleep(0.3)
    assert driver.execute_script("return window.owned === undefined;")
    assert any("Content Security Policy" in each for each in complaints(driver))


def test_panels_of_a_comparison_are_zoomed_together(browse: Open, tmp_path: Path) -> None:
    found = compare(WORKLOAD, ["1f1b", "zb-h1"], "hgx-h100")
    path = tmp_path / "compare.html"
    write_comparison(found, path, command="stepsim compare", what_if=["", ""])
    driver = browse(path)
    driver.find_element("id", "timeline-1").send_keys("+")
    starts = (
        "return ['timeline-0', 'timeline-1'].map((name) =>"
        " Bokeh.documents[0].get_model_by_name(name).x_range.start);"
    )
    assert wait_for(lambda: driver.execute_script(starts)[0] > 0)
    assert len(set(driver.execute_script(starts))) == 1
    for _ in range(2):
        driver.find_element("id", "timeline-1").send_keys("+")
    lanes = (
        "return ['timeline-0', 'timeline-1'].map((name) => Bokeh.documents[0].get_model_by_name("
        "name).renderers.find((each) => each.name === 'spans').visible);"
    )
    assert wait_for(lambda: driver.execute_script(lanes) == [True, True])
    assert len(driver.find_elements("css selector", "#timeline .controls")) == 1
    assert complaints(driver) == []


def test_tables_are_sorted_by_their_numbers(browse: Open, page: Path) -> None:
    driver = browse(page)
    table = driver.find_element("css selector", "#network table")
    heads = table.find_elements("css selector", "th button")
    place = [head.text for head in heads].index("Time")
    driver.execute_script("arguments[0].click()", heads[place])
    cells = table.find_elements("css selector", f"tbody td:nth-child({place + 1})")
    values = [float(cell.get_attribute("data-value")) for cell in cells]
    assert values == sorted(values)
    assert len(set(values)) > 1
