"""Comparing results: reading them, what explains a difference, how it is printed."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import stepsim
from stepsim.base.axes import Part
from stepsim.base.errors import StepsimError
from stepsim.explain.diff import ResultDiff, diff_results, explain
from stepsim.explain.report import LinkUse, ResultDocument, StageReport
from stepsim.files.load import load_result
from stepsim.show.terminal import Paper, print_shown
from stepsim.views.comparison import diff_shown

MS = 10**9
GIB = 2**30
NAMES = tuple(part.name.lower() for part in Part)


def parts(**given: int) -> dict[str, int]:
    return dict.fromkeys(NAMES, 0) | given


def link(name: str, size: int, busy: int, rate: float | None = 50e9) -> LinkUse:
    return LinkUse(name=name, bandwidth_bytes_per_s=rate, total_bytes=size, busy_ps=busy)


def document(
    mean: dict[str, int],
    stages: tuple[dict[str, int], ...] = (),
    links: tuple[LinkUse, ...] = (),
    **settings: Any,
) -> ResultDocument:
    given: dict[str, Any] = {
        "schema_version": 1,
        "workload": "w.txt",
        "topology": "t",
        "schedule": "1f1b",
        "p2p": "blocking",
        "npus": 8,
        "microbatches": 4,
        "plan": {"tp": 2, "dp": 2, "pp": 2, "ep": 1},
    }
    entries = enumerate(stages or (mean,))
    return ResultDocument(
        **given | settings,
        step_time_ps=sum(mean.values()),
        breakdown_ps=mean,
        stages=tuple(StageReport(stage=i, breakdown_ps=each) for i, each in entries),
        links=links,
    )


def printed(diff: ResultDiff) -> str:
    out = io.StringIO()
    print_shown(Paper(out), diff_shown(diff))
    tables = [line for line in out.getvalue().splitlines() if line != explain(diff)]
    assert max(map(len, tables), default=0) <= 80
    return out.getvalue()


EVEN = parts(compute=70 * MS, exposed_dp=10 * MS, inner=20 * MS)
SLOW_LAST_STAGE = (
    document(
        EVEN,
        (EVEN, EVEN),
        (link("nvlink", GIB, 2 * MS), link("fabric", 4 * GIB, 8 * MS)),
    ),
    document(
        parts(compute=69 * MS, exposed_dp=18 * MS, inner=23 * MS),
        (
            parts(compute=69 * MS, exposed_dp=11 * MS, inner=30 * MS),
            parts(compute=69 * MS, exposed_dp=25 * MS, inner=16 * MS),
        ),
        (link("nvlink", GIB, 2 * MS), link("fabric", 4 * GIB, 16 * MS, 25e9)),
        topology="slow",
        npus=16,
        plan={"tp": 2, "dp": 4, "pp": 2, "ep": 1, "cp": 2},
    ),
)


def test_known_difference_is_split_exactly_and_sorted() -> None:
    diff = diff_results(*SLOW_LAST_STAGE)
    assert diff.step.difference_ps == 10 * MS
    found = [(each.name, each.difference_ps) for each in diff.components[:4]]
    assert found == [
        ("exposed_dp", 8 * MS),
        ("inner", 3 * MS),
        ("compute", -MS),
        ("exposed_tp", 0),
    ]
    assert [diff.share(each) for each in diff.components[:3]] == [0.8, 0.3, -0.1]
    settings = [(each.name, each.a, each.b) for each in diff.settings]
    assert settings == [
        ("topology", "t", "slow"),
        ("npus", "8", "16"),
        ("dp", "2", "4"),
        ("cp", "-", "2"),
    ]


def test_stages_are_ranked_by_what_they_do_themselves() -> None:
    last, first = diff_results(*SLOW_LAST_STAGE).stages
    assert (last.stage, last.own.difference_ps, last.waiting.difference_ps) == (
        1,
        14 * MS,
        -4 * MS,
    )
    assert (last.largest.name, last.largest.difference_ps) == ("exposed_dp", 15 * MS)
    assert (first.stage, first.own.difference_ps, first.waiting.difference_ps) == (0, 0, 10 * MS)
    assert first.largest.difference_ps in {MS, -MS}  # its own time, not the longer wait


def test_largest_part_is_waiting_only_when_nothing_else_differs() -> None:
    a = document(parts(compute=5), (parts(compute=5), parts(inner=5)))
    b = document(parts(compute=9), (parts(compute=9), parts(inner=9)))
    largest = {stage.stage: stage.largest.name for stage in diff_results(a, b).stages}
    assert largest == {0: "compute", 1: "inner"}


def test_links_are_matched_by_name_and_sorted_by_time() -> None:
    links = diff_results(*SLOW_LAST_STAGE).links
    assert [(link.name, link.busy.difference_ps) for link in links] == [
        ("fabric", 8 * MS),
        ("nvlink", 0),
    ]


def test_sentence_names_component_stage_and_link() -> None:
    assert explain(diff_results(*SLOW_LAST_STAGE)) == (
        "exposed dp explains 80% of the difference, most on stage 1; link fabric carries as much, "
        "4 GiB, at 25 GB/s instead of 50 GB/s: its busiest link is in use for 16 ms instead of "
        "8 ms."
    )
    back = explain(diff_results(*reversed(SLOW_LAST_STAGE)))
    assert back.endswith(
        "at 50 GB/s instead of 25 GB/s: its busiest link is in use for 8 ms instead of 16 ms."
    )


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            parts(compute=10, inner=10),
            parts(compute=12, inner=18),
            "idle, steady explains 80% of the difference, where ranks wait for others; of what "
            "they do themselves, compute explains most, 20%.",
        ),
        (
            parts(compute=20, host=5),
            parts(compute=10, host=10),
            "compute explains 200% of the difference; host takes 100% back.",
        ),
        (
            parts(compute=20, skew=5),
            parts(compute=10, skew=15),
            "both steps take equally long: skew takes 10 ps more, compute 10 ps less.",
        ),
    ],
)
def test_sentences(before: dict[str, int], after: dict[str, int], sentence: str) -> None:
    assert explain(diff_results(document(before), document(after))) == sentence


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((link("x", GIB, 5),), (link("y", GIB, 9),), "link y, which only B has, carries 1 GiB: "),
        (
            (link("x", GIB, 5, None),),
            (link("x", GIB, 9, 1e9),),
            "as much, 1 GiB, at 1 GB/s instead of inf: ",
        ),
    ],
)
def test_link_words(a: tuple[LinkUse, ...], b: tuple[LinkUse, ...], words: str) -> None:
    diff = diff_results(document(parts(host=1), links=a), document(parts(host=2), links=b))
    assert words in explain(diff)
    printed(diff)


def test_different_numbers_of_stages_compare_only_the_totals() -> None:
    a = document(parts(compute=5), (parts(compute=5),) * 2)
    b = document(parts(compute=9), (parts(compute=9),) * 4)
    diff = diff_results(a, b)
    assert (diff.stages, diff.stage_counts) == ((), (2, 4))
    assert "stages: A has 2, B has 4, so only the totals are compared" in printed(diff)
    assert explain(diff) == "compute explains 100% of the difference."


def test_identical_results_say_so() -> None:
    for each in SLOW_LAST_STAGE:
        diff = diff_results(each, each)
        assert diff.identical
        assert printed(diff).startswith("A and B are identical")


@pytest.mark.parametrize(
    "other",
    [
        document(parts(compute=4), topology="other"),
        document(parts(compute=4), links=(link("x", 1, 1),)),
        document(parts(compute=3, host=1)),
    ],
)
def test_results_as_slow_are_not_called_identical(other: ResultDocument) -> None:
    diff = diff_results(document(parts(compute=4)), other)
    assert not diff.identical
    assert "(no difference)" in printed(diff)
    assert explain(diff).startswith("both steps take equally long")


TIMES = st.dictionaries(st.sampled_from([*NAMES, "later"]), st.integers(0, 2**62), max_size=11)


@given(TIMES, TIMES, st.lists(st.tuples(TIMES, TIMES), max_size=3))
def test_component_differences_sum_exactly_to_the_step_difference(
    a: dict[str, int],
    b: dict[str, int],
    stages: list[tuple[dict[str, int], dict[str, int]]],
) -> None:
    ours = document(parts(**a), tuple(parts(**one) for one, _ in stages))
    theirs = document(parts(**b), tuple(parts(**other) for _, other in stages))
    diff = diff_results(ours, theirs)
    assert sum(each.difference_ps for each in diff.components) == diff.step.difference_ps
    for stage in diff.stages:
        moved = stage.own.difference_ps + stage.waiting.difference_ps
        assert moved == sum(each.difference_ps for each in stage.components)
    assert explain(diff).endswith(".")
    printed(diff)


@pytest.fixture(scope="module")
def pair(workloads: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A real job on two networks."""
    folder = tmp_path_factory.mktemp("pair")
    files = (folder / "h100.json", folder / "a100.json")
    for file in files:
        result = stepsim.simulate(workloads / "moe_128.txt", f"hgx-{file.stem}")
        result.write_json(file)
    return files


def test_real_pair(pair: tuple[Path, Path]) -> None:
    a, b = map(load_result, pair)
    written = [json.loads(file.read_text()) for file in pair]
    diff = diff_results(a, b)
    assert [(each.name, each.a, each.b) for each in diff.settings] == [
        ("topology", "hgx-h100", "hgx-a100")
    ]
    step = written[1]["step_time_ps"] - written[0]["step_time_ps"]
    assert diff.step.difference_ps == step > 0
    for each in diff.components:
        values = [one["breakdown_ps"][each.name] for one in written]
        assert [each.a_ps, each.b_ps] == values
    for stage in diff.stages:
        assert stage.own.difference_ps + stage.waiting.difference_ps == step
    assert diff.links[0].name == "fabric"
    assert "link fabric carries as much, " in explain(diff)
    assert explain(diff) in " ".join(printed(diff).split())


Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def changed(pair: tuple[Path, Path], tmp_path: Path) -> Callable[[Change], Path]:
    """Writes a real result after a change to it."""

    def write(change: Change) -> Path:
        raw = json.loads(pair[0].read_text())
        change(raw)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(raw))
        return path

    return write


def test_later_keys_parts_and_degrees_are_tolerated(changed: Callable[[Change], Path]) -> None:
    def later(raw: dict[str, Any]) -> None:
        raw["cost"] = {"per_hour": 3.5}
        raw["stages"][0]["memory_bytes"] = 5
        raw["links"][0]["rail"] = None
        raw["plan"]["cp"] = 2
        raw["breakdown_ps"]["compute"] -= 7
        raw["breakdown_ps"]["exposed_cp"] = 7
        del raw["ranks"]

    read = load_result(str(changed(later)))
    assert read.plan["cp"] == 2
    assert read.breakdown_ps["exposed_cp"] == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw.update(schema_version=2),
            "schema_version is 2: expected a whole number <= 1",
        ),
        (lambda raw: raw.pop("schema_version"), "not a result of 'stepsim simulate --json'"),
        (lambda raw: raw.pop("workload"), "workload is missing"),
        (lambda raw: raw["stages"][1].pop("stage"), "stages[1]: stage is missing"),
        (lambda raw: raw.update(npus="8"), "npus is '8': expected a whole number"),
        (lambda raw: raw.update(step_time_ps=2**63), "step_time_ps is 9223372036854775808: expe"),
        (
            lambda raw: raw["stages"][2]["breakdown_ps"].update(tail=-4),
            "stages[2].breakdown_ps.tail is -4: expected a whole number >= 0",
        ),
        (
            lambda raw: raw["breakdown_ps"].update(host=5),
            "the file is inconsistent",
        ),
        (
            lambda raw: raw["stages"][3]["breakdown_ps"].update(host=5),
            "sum of stages[3].breakdown_ps is ",
        ),
        (
            lambda raw: raw["stages"].pop(0),
            "stages[0].stage is 1: expected 0: stages are numbered from 0 in order",
        ),
        (
            lambda raw: raw["links"][1].update(name=raw["links"][0]["name"]),
            "links[1].name is 'nvlink': expected a name of its own",
        ),
    ],
)
def test_a_result_that_is_wrong_is_refused(
    changed: Callable[[Change], Path], change: Change, message: str
) -> None:
    path = changed(change)
    with pytest.raises(StepsimError) as caught:
        load_result(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"schema_version": NaN}', "not valid JSON"),
        (b'{"a": "\xff"}', "not a text file"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not a result"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(StepsimError, match=message) as caught:
        load_result(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(StepsimError, match="cannot read the result") as caught:
            load_result(path)
        assert str(path) in str(caught.value)
