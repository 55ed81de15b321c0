"""Reports in a browser: what is drawn, zoomed and said under the pointer is what was simulated."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import Span, rows_of

import stepsim
from browser.conftest import Open
from browser.looking import complaints, requests, wait_for
from stepsim.base.structs import replace
from stepsim.face.results import Result
from stepsim.face.steps import compare
from stepsim.run.spans import TaskKind
from stepsim.views.pages import comparison_page, file_page, step_page

WORKLOAD = Path(__file__).parents[2] / "workloads" / "moe_128.txt"
EVIL = "</script><img src=x onerror=window.owned=1><script>window.owned=1</script>"
PS = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
TASKS = "return page.boxes.filter(({ span }) => !span.spans)"
SHOWN = "return [page.scale.low, page.scale.high]"
POINT = """
const task = page.shown.tasks.spans[arguments[0]], { start, end } = task, took = end - start;
choose(null);
zoomTo(start - took, end + took);
const box = page.boxes.find(({ span }) => span === task);
const frame = find("timeline").getBoundingClientRect();
const [left, most] = [Math.max(box.left, LEFT), Math.min(box.left + box.wide, page.scale.width)];
return [frame.left + (left + most) / 2, frame.top + box.top + box.high / 2].map(Math.round);
"""
HOVERED = """
const task = page.hover && page.shown.tasks.spans.indexOf(page.hover.span);
return page.hover && [task, find("tip").textContent.split("\\n")];
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return stepsim.simulate(WORKLOAD, "hgx-h100")


@pytest.fixture(scope="module")
def page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "step.html"
    step_page(result, None).write(path, "stepsim simulate")
    return path


def picoseconds(text: str) -> float:
    number, unit = (*text.split(), "ps")[:2]
    return float(number) * PS[unit]


def point_at(driver: Any, number: int) -> tuple[int, list[str]]:
    """The task under the pointer, once it is where a task is drawn, and what is said of it."""
    from selenium.webdriver import ActionChains

    x, y = driver.execute_script(POINT, number)
    pointer: Any = ActionChains(driver, duration=0)
    pointer.w3c_actions.pointer_action.move_to_location(x - 3, y)
    pointer.w3c_actions.pointer_action.move_to_location(x, y)
    pointer.perform()
    task, lines = wait_for(lambda: driver.execute_script(HOVERED))
    return task, lines


def some_of_each_kind(spans: Sequence[Span]) -> list[int]:
    """A short span of every kind on every stream, from the middle of the step."""
    found: dict[tuple[int, int], int] = {}
    step = spans[-1].end_ps
    for i, span in sorted(enumerate(spans), key=lambda each: abs(each[1].start_ps - step // 2)):
        if 0 < span.end_ps - span.start_ps < step / 20:
            found.setdefault((span.kind, span.stream), i)
    return list(found.values())


def test_every_task_is_drawn_and_nothing_is_complained_of(
    browse: Open, page: Path, result: Result
) -> None:
    driver, spans = browse(page), list(rows_of(result.timeline))
    times = driver.execute_script(
        "return page.shown.tasks.spans.map(({ start, end }) => [start, end])"
    )
    assert times == [[span.start_ps, span.end_ps] for span in spans]
    assert driver.execute_script(f"{TASKS}.length") == 0
    step = result.report.step_time_ps
    low, high = 0.4 * step, 0.5 * step
    driver.execute_script("zoomTo(...arguments)", low, high)
    inside = {i for i, span in enumerate(spans) if span.end_ps >= low and span.start_ps <= high}
    number = "({ span }) => page.shown.tasks.spans.indexOf(span)"
    assert inside <= set(driver.execute_script(f"{TASKS}.map({number})"))
    assert driver.title.startswith("moe_128.txt on hgx-h100: ")
    assert (complaints(driver), requests(driver)) == ([], [])


def test_a_stored_step_is_drawn(browse: Open, result: Result, tmp_path: Path) -> None:
    result.write_json(tmp_path / "step.json")
    file_page(tmp_path / "step.json").write(tmp_path / "step.html")
    driver, step = browse(tmp_path / "step.html"), result.report.step_time_ps
    assert max(driver.execute_script("return page.shown.lanes.spans.map(({ end }) => end)")) == step
    driver.execute_script("zoomTo(...arguments)", 0.1 * step, 0.9 * step)
    assert driver.execute_script("return page.boxes.length") > len(result.timeline.actors)
    assert (complaints(driver), requests(driver)) == ([], [])


def test_the_tip_says_what_the_timeline_holds(browse: Open, page: Path, result: Result) -> None:
    driver, spans = browse(page), list(rows_of(result.timeline))
    names = driver.execute_script("return page.shown.lanes.rows")
    ranks = list(dict.fromkeys(span.rank for span in spans))
    chosen = some_of_each_kind(spans)
    assert len(chosen) > 5
    for number in chosen:
        task, (heading, times, *more) = point_at(driver, number)
        span = spans[task]
        assert (span.kind, span.start_ps) == (spans[number].kind, spans[number].start_ps)
        assert heading.startswith(f"{names[ranks.index(span.rank)]}: ")
        took, start = map(picoseconds, times.split(" from "))
        assert (took, start) == pytest.approx((span.end_ps - span.start_ps, span.start_ps), 1e-3)
        ends = re.findall(r"ends at ([\d.]+ \w+)", "\n".join(more))
        last = span.end_ps if span.kind == TaskKind.RECV else span.start_ps  # it meets its send
        assert all(picoseconds(end) <= last * 1.001 for end in ends)
        assert (span.size_bytes > 0) == any(" ranks, " in line for line in more)
    assert complaints(driver) == []


def test_keys_zoom_move_and_walk_the_critical_path(browse: Open, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = browse(page)
    place = driver.find_element("id", "timeline")
    whole = driver.execute_script(SHOWN)
    place.send_keys("+")
    near = driver.execute_script(SHOWN)
    assert near[1] - near[0] == pytest.approx(0.6 * whole[1])
    place.send_keys(Keys.ARROW_RIGHT)
    assert driver.execute_script(SHOWN)[0] > near[0]
    place.send_keys(Keys.ESCAPE)
    assert driver.execute_script(SHOWN) == whole
    starts = []
    for _ in range(20):
        place.send_keys("n")
        _, (_, times, *_) = driver.execute_script(HOVERED)
        starts.append(picoseconds(times.split(" from ")[1]))
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] > 0
    assert complaints(driver) == []


def test_dragging_zooms_until_the_whole_step_is_asked_for(browse: Open, page: Path) -> None:
    from selenium.webdriver import ActionChains

    driver = browse(page)
    place = driver.find_element("id", "timeline")
    drag = ActionChains(driver).move_to_element_with_offset(place, -100, 0).click_and_hold()
    drag.move_by_offset(80, 2).move_by_offset(80, 2).release().perform()
    low, high = driver.execute_script(SHOWN)
    longest = driver.execute_script("return page.scale.longest")
    assert longest / 20 < high - low < longest / 5
    assert driver.execute_script(f"{TASKS}.length") > 0
    driver.find_element("id", "zoom-all").click()
    assert driver.execute_script(SHOWN) == [0, longest]
    assert complaints(driver) == []


def test_names_run_nothing(browse: Open, result: Result, tmp_path: Path) -> None:
    comms = tuple(replace(use, algorithms=(EVIL,)) for use in result.report.comms)
    links = tuple(replace(link, name=EVIL, busiest=EVIL) for link in result.report.links)
    report = replace(
        result.report, workload=EVIL, topology=EVIL, comms=comms, links=links, warnings=(EVIL,)
    )
    path = tmp_path / "evil.html"
    step_page(replace(result, report=report), None).write(path, EVIL)
    driver, spans = browse(path), list(rows_of(result.timeline))
    number = next(i for i in some_of_each_kind(spans) if spans[i].size_bytes > 0)
    _, lines = point_at(driver, number)
    assert EVIL in "\n".join(lines)
    assert driver.title.startswith(f"{EVIL} on {EVIL}: ")
    assert driver.execute_script("return window.owned === undefined && !document.images.length")
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


def test_runs_of_a_comparison_have_one_axis(browse: Open, tmp_path: Path) -> None:
    found = compare(WORKLOAD, ["1f1b", "zb-h1"], "hgx-h100")
    path = tmp_path / "compare.html"
    comparison_page(found, found.inputs).write(path, "stepsim compare")
    driver = browse(path)
    steps = {name: step.report.step_time_ps for name, step in found.valid}
    shown = driver.execute_script("return drawnRuns().map((one) => [one.title, one.run.step_ps])")
    assert shown == [[name, steps[name]] for name in sorted(steps, key=lambda name: steps[name])]
    assert driver.execute_script("return page.scale.longest") == max(steps.values())
    for _ in range(4):
        driver.find_element("id", "timeline").send_keys("+")
    drawn = driver.execute_script(f"{TASKS}.map(({{ run }}) => run.title)")
    assert set(drawn) == set(steps)
    assert complaints(driver) == []


def test_tables_are_sorted_by_their_numbers(browse: Open, page: Path) -> None:
    driver = browse(page)
    values = driver.execute_script(
        "const head = [...document.querySelectorAll('#tables th')].find((one) =>"
        " one.textContent === 'all times'); head.firstChild.click();"
        "const rows = [...head.closest('table').tBodies[0].rows];"
        "return rows.map(({ cells }) => cells[head.cellIndex].order);"
    )
    assert values == sorted(values)
    assert len(set(values)) > 1
