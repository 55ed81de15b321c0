"""Public functions refuse wrong types and values in one line that names the argument."""

import inspect
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from helpers import examples, uniform_workload
from hypothesis import given, strategies as st

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import StepsimError, printable
from stepsim.options import OPTIONS

WORK = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=2)
STEP = {"workload": WORK, "topology": "ring"}
SOME: dict[str, dict[str, object]] = {
    "simulate": STEP,
    "compare": {**STEP, "schedules": ["1f1b"]},
    "sensitivity": STEP,
    "noise": {**STEP, "samples": 3},
    "batches": {
        "workload": "llama-2-7b",
        "topology": "hgx-h100",
        "npus": 8,
        "sequence": 64,
        "microbatches": 1,
        "lengths": [3, 5],
        "packers": ["padded"],
        "steps": 2,
    },
    "sweep": {**STEP, "axes": {"microbatches": [2]}, "jobs": 1},
    "collective_time": {"topology": "ring", "kind": "all_reduce", "size_bytes": 8, "ranks": [0, 1]},
    "plan": {
        "model": "llama-2-7b",
        "topology": "hgx-h100",
        "gpus": 3,
        "global_batch": 3,
        "sequence": 5,
        "runs": 1,
    },
    "make_schedule": {"name": "own", "orders": [["0F0", "0B0"]]},
    "explain_log": {"log": "absent"},
    "model": {"name": "llama-2-7b"},
    "assert_plan": {"plan": "absent", "max_step": "1 s"},
    "inspect": {"subject": "ring"},
    "load_topology": {"topology": "ring"},
    "load_sweep": {"database": "absent"},
    "validate": {"runs": ["absent"]},
    "calibrate": {"runs": ["absent"]},
    "write_calibration": {"calibration": None, "path": "absent/file.toml"},
    "load_run": {"path": "absent"},
    "load_profile": {"path": "absent"},
    "load_workload": {"path": "absent"},
    "read_calibration": {"path": "absent"},
    **{name: {"run": "absent"} for name in ("simulate_run", "what_if", "improve", "stragglers")},
}
"""Arguments of every public function that are cheap; files that are absent."""
TIRING = {("sweep", "jobs"), ("sweep", "database"), ("plan", "jobs"), ("plan", "store")}
"""What is right for too many values: processes are started, files written."""


class Thing:
    """Of no use to anybody."""

    def __repr__(self) -> str:
        return "a thing\nof two lines"


NOUNS: list[Any] = [
    WORK,
    stepsim.load_topology("ring"),
    stepsim.schedules.build("gpipe", ranks=2, microbatches=2),
    stepsim.Plan(),
    CollectiveKind.ALL_REDUCE,
    Path("absent"),
    date(2026, 1, 1),
    len,
]
"""What is right for one argument and wrong for the others."""
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
NESTED = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inside, max_size=2),
        st.tuples(inside, inside),
        st.frozensets(LEAVES, max_size=2),
    ),
    max_leaves=4,
)
"""Sequences and mappings of anything, nested."""
WRONG = st.one_of(
    st.sampled_from(NOUNS),
    NESTED,
    st.sampled_from([-1, 2**63, 10**30, -(10**30), 0.5, -1e300, float("nan"), float("inf"), 1j]),
    st.booleans(),
    st.text(max_size=5).filter(lambda text: not Path(printable(text)).exists()),
    st.binary(max_size=3),
    st.sampled_from([Thing(), Thing, np.arange(3), np.array([]), {}, {"a": 1}, {1: None}, set()]),
    st.sampled_from([nx.path_graph(3), nx.DiGraph(), [None], [[]], [Thing()], ["absent"]]),
)
FUNCTIONS = [
    name
    for name in stepsim.__all__
    if inspect.isfunction(getattr(stepsim, name))
    and not name.startswith("_")
    and inspect.signature(getattr(stepsim, name)).parameters
]


def arguments(name: str) -> list[str]:
    """The arguments of a function, by name, and options of a step where it takes them."""
    parameters = inspect.signature(getattr(stepsim, name)).parameters.values()
    own = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return [*own, *(OPTIONS if len(own) < len(parameters) else ())]


def test_every_public_function_is_tried() -> None:
    assert set(FUNCTIONS) == SOME.keys()


def refused(call: Callable[[], object]) -> str:
    """What the only error that is allowed says; nothing where there is none."""
    try:
        call()
    except StepsimError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
@examples(40)
def test_wrong_arguments_are_named(name: str, data: st.DataObject) -> None:
    argument = data.draw(st.sampled_from(arguments(name)))
    value: Any = data.draw(WRONG)
    if (name, argument) in TIRING:
        return
    given_ = {**SOME[name], argument: value}
    message = refused(lambda: getattr(stepsim, name)(**given_))
    assert message.isprintable()
    names_files = isinstance(value, list | tuple) and "absent" in value and "absent" in message
    if not isinstance(value, str | Path | nx.Graph) and message and not names_files:
        usual = refused(lambda: getattr(stepsim, name)(**SOME[name]))
        names = {argument, argument.removesuffix("s"), {"axes": "axis"}.get(argument, argument)}
        said = message.replace("-", "_").replace(" ", "_")
        assert message == usual or any(name in said for name in names)


@pytest.mark.parametrize("value", [Thing(), "x", -1, 0.5, np.arange(3), [1]])
def test_wrong_plans_are_refused(value: Any) -> None:
    for field in stepsim.Plan.__struct_fields__:
        with pytest.raises(StepsimError, match=field):
            stepsim.Plan(**{field: value})


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("plan", {"device": np.arange(3)}, r"device is array\(\[0, 1, 2\]\): expected a shipped"),
        ("batches", {"packers": [0]}, "packer is 0: expected one of sequence, "),
        ("sensitivity", {"compute_scale": 5e-324}, "compute scale is 0.0 .*: expected above 0"),
    ],
)
def test_wrong_arguments_of_one_function_are_named(
    name: str, change: dict[str, Any], said: str
) -> None:
    assert re.match(said, refused(lambda: getattr(stepsim, name)(**{**SOME[name], **change})))


def test_nouns_texts_and_numbers_mean_the_same() -> None:
    graph = stepsim.load_topology("ring", 2).graph()
    schedule = stepsim.schedules.build("gpipe", ranks=2, microbatches=2)
    asked: dict[str, Any] = {
        "host_overhead": "250 us",
        "compute_scale": "0.5",
        "schedule": "gpipe",
        "pp": "2",
    }
    numbers: dict[str, Any] = {"host_overhead": 0.00025, "compute_scale": 0.5, "pp": 2}
    numbers["schedule"] = schedule
    named = stepsim.simulate(WORK, "ring", **asked).report.step_time_ps
    nouns = stepsim.simulate(WORK, stepsim.load_topology("ring"), **numbers).report.step_time_ps
    assert named == nouns
    others: dict[str, Any] = {"npus": np.int64(2)}
    assert stepsim.simulate(WORK, graph, **others).report.step_time_ps > 0


def test_other_names_of_flags_are_names_in_python() -> None:
    found = stepsim.simulate(WORK, "ring", gpus=2)
    assert found.to_dict() == stepsim.simulate(WORK, "ring", npus=2).to_dict()
    with pytest.raises(StepsimError, match="gpus and npus are one option"):
        stepsim.simulate(WORK, "ring", gpus=2, npus=2)


def test_a_topology_for_a_workload_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('name = "pod"')
    with pytest.raises(StepsimError, match=r"own\.toml: TOML is no workload: .*--topology"):
        stepsim.simulate(path)


def test_misspelt_arguments_are_pythons_errors() -> None:
    collective_time: Any = stepsim.collective_time
    simulate: Any = stepsim.simulate
    with pytest.raises(TypeError, match="samplez"):
        collective_time("ring", "all_reduce", 8, [0], samplez=3)
    with pytest.raises(StepsimError, match="unknown option 'samplez'"):
        simulate(WORK, "ring", samplez=3)


@pytest.mark.parametrize("ranks", [[], [-1], [0, 0], [0, 2**40]])
@pytest.mark.parametrize("topology", ["ring", stepsim.load_topology("ring")])
def test_ranks_that_no_network_has_are_named(topology: Any, ranks: list[int]) -> None:
    with pytest.raises(StepsimError, match=r"^ranks: expected distinct numbers from 0 to "):
        stepsim.collective_time(topology, "all_reduce", 8, ranks)
