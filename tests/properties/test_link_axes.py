"""A sweep along a number of a link gives what `simulate` gives on the file that says it."""

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomli_w
from helpers import collective, few, row
from hypothesis import given, settings, strategies as st
from pairs import in_turn

import stepsim
from stepsim.base.axes import Group, Phase, degrees_of
from stepsim.base.structs import replace
from stepsim.explain.report import Report
from stepsim.explore.sweep import Grid, Study, open_for_reading, parse_axis, run_sweep
from stepsim.files.asked import read_options
from stepsim.files.sweep_table import SweepTable
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import with_values
from stepsim.workload.rows import Microbatch, Role, StepItem, Work, Workload

NUMBERS = {
    "bandwidth": ["20 GB/s", "50 GB/s", "800 Gbps", "inf"],
    "latency": ["0 ps", "500 ns", "3 us", "1 ms"],
    "endpoint_latency": ["0 ps", "700 ns", "5 us", "2 ms"],
    "efficiency": ["0.5", "0.8", "0.9", "1"],
}
SHAPES: dict[str, dict[str, object]] = {
    "ring": {},
    "switch": {},
    "rail": {},
    "fully_connected": {},
    "torus": {"shape": [2, 2, 2]},
    "fat_tree": {"leaf": 8, "spines": 2},
    "dragonfly": {"routers": 4, "npus_per_router": 2, "global_links": 1},
}
OWN = {
    "fat_tree": {"up_bandwidth": NUMBERS["bandwidth"]},
    "dragonfly": {
        "global_bandwidth": NUMBERS["bandwidth"],
        "global_latency": NUMBERS["latency"],
    },
}
PLACES = ["inner", "outer"]
File = dict[str, object]


def two_stages() -> Workload:
    """Groups of every kind on both dimensions: tp within nodes, dp across, messages."""
    inside = collective(40_000, Group.TP)
    both = Work(compute_ps=70_000, comms=(inside,))
    layer = replace(row(0, 0, 50_000), forward=both, input_grad=both)
    reduced = Work(comms=(collective(300_000, Group.DP),))
    gradients = StepItem(
        name="gradients", phase=Phase.WEIGHT_GRAD, work=reduced, role=Role.GRADIENTS
    )
    return Workload(
        source="made",
        degrees=degrees_of(tp=2, pp=2),
        npus=32,
        pp_comm_bytes=90_000,
        microbatches=(Microbatch(embedding=(), layers=((layer,), (layer,)), head=()),),
        per_step=(gradients,),
    )


WORKLOAD = two_stages()


@st.composite
def dimensions(draw: st.DrawFn, name: str, kind: str, size: int) -> File:
    """A `[[dimension]]` of a topology file, with all of its numbers or some."""
    table: File = {"name": name, "kind": kind, **SHAPES[kind]}
    if "shape" not in table:
        table["size"] = size
    for field, values in (NUMBERS | OWN.get(kind, {})).items():
        if field in ("bandwidth", "latency") or draw(st.booleans()):
            table[field] = said(field, draw(st.sampled_from(values)))
    return table


def said(field: str, text: str) -> object:
    """A number as a file says it."""
    return float(text) if field == "efficiency" else text


@st.composite
def files(draw: st.DrawFn) -> File:
    """A topology of two dimensions: nodes of 4 NPUs, 8 of them joined in any way."""
    inner = draw(st.sampled_from(["ring", "switch", "fully_connected"]))
    return {
        "name": "random",
        "source": "test",
        "dimension": [
            draw(dimensions("inner", inner, 4)),
            draw(dimensions("outer", draw(st.sampled_from(list(SHAPES))), 8)),
        ],
    }


@pytest.mark.parametrize("field", NUMBERS)
@given(file=files(), place=st.sampled_from([0, 1]), data=st.data())
def test_an_edited_topology_is_that_of_the_edited_file(
    field: str, file: File, place: int, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from(NUMBERS[field]))
    name = f"{PLACES[place]}.{field}"
    [value] = parse_axis(f"{name}={text}").values
    with TemporaryDirectory() as folder:
        topology = load(Path(folder), file)
        there = load(Path(folder), edited(file, place, field, text))
    assert isinstance(value, int | float)
    assert with_values(topology, {name: value}).link_classes == there.link_classes


CONTENTIONS = ("none", "fair")


@pytest.mark.parametrize(
    ("field", "contention"),
    few(product(NUMBERS, CONTENTIONS), *in_turn([*NUMBERS], CONTENTIONS)),
)
@settings(max_examples=3)
@given(file=files(), place=st.sampled_from([0, 1]), overlap=st.booleans())
def test_a_sweep_equals_simulate(
    field: str, contention: str, file: File, place: int, overlap: bool
) -> None:
    asked: dict[str, Any] = {"microbatches": 4, "dp_overlap": overlap, "contention": contention}
    with TemporaryDirectory() as folder:
        axis = parse_axis(f"{PLACES[place]}.{field}={','.join(NUMBERS[field])}")
        study = Study(
            workload=WORKLOAD,
            topology=load(Path(folder), file),
            grid=Grid(axes=(axis,)),
            options=read_options(asked)[0],
            breakdown=True,
        )
        database = Path(folder, "sweep.sqlite")
        run_sweep(study, database, jobs=1)
        with open_for_reading(database) as store:
            [columns] = list(SweepTable(store=store).pieces())
        for i, text in enumerate(axis.texts):
            there = load(Path(folder), edited(file, place, field, text))
            report = stepsim.simulate(WORKLOAD, there, **asked).report
            assert [column[i] for column in columns[1:]] == stored(report, there)


def edited(file: File, place: int, field: str, text: str) -> File:
    """The file with another number in one of its dimensions."""
    dimensions = file["dimension"]
    assert isinstance(dimensions, list)
    changed = [*dimensions]
    changed[place] = dimensions[place] | {field: said(field, text)}
    return file | {"dimension": changed}


def load(folder: Path, file: File) -> Topology:
    path = folder / "topology.toml"
    path.write_text(tomli_w.dumps(file))
    return stepsim.load_topology(path)


def stored(report: Report, topology: Topology) -> list[object]:
    """What a sweep stores of a step, and no error."""
    fitted = topology.fit(report.npus)
    links = zip(fitted.link_counts(), fitted.link_classes, strict=True)
    total = sum(count * link.bandwidth for count, link in links if count)
    return [
        report.step_time_ps,
        report.pipeline_time_ps,
        report.bubble_fraction,
        None if total == float("inf") else pytest.approx(total),
        *[None] * 4,  # what is known of models
        *report.breakdown_ps.values(),
        None,
    ]
