"""PyTorch execution graphs: operators, groups and bytes of every rank, and no times."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stepsim
from stepsim import cli
from stepsim.base.errors import TraceError
from stepsim.explain.contents import counted_operations
from stepsim.files.traces.forms import is_profile, read_profile
from stepsim.tables.spans import UNKNOWN, TaskKind

Raw = dict[str, Any]
GROUPS = json.dumps(
    [
        {"pg_name": "0", "uid": 77, "ranks": [], "group_size": 4},
        {"pg_name": "1", "uid": 78, "ranks": {"1": 0, "3": 1}, "group_size": 2},
    ]
)


def tensor(elements: int) -> list[Any]:
    return [5, 6, 0, elements, 4, "cuda:0"]


def old_node(number: int, name: str, parent: int, *values: object, out: object = ()) -> Raw:
    """A node of schema 1.0.1."""
    outputs = [out] if out else []
    return {
        "id": number,
        "name": name,
        "parent": parent,
        "tid": 1,
        "inputs": [*values],
        "outputs": outputs,
    }


def new_node(number: int, name: str, parent: int, *values: object, out: object = ()) -> Raw:
    """A node of schema 1.1.1."""
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": [*values], "shapes": [], "types": []},
        "outputs": {"values": [out] if out else [], "shapes": [], "types": []},
        "attrs": [{"name": "tid", "type": "uint64", "value": 1}],
    }


def graph(rank: int, *, new: bool) -> Raw:
    """Rank 1 or 3 multiplies, gathers with the other, sends to it or receives, and waits."""
    make: Callable[..., Raw] = new_node if new else old_node
    group, other = (["1", "tp"] if new else 78), 1 - rank // 2
    word, ends = ("send", "recv")[rank // 2], tensor(10)
    return {
        "schema": "1.1.1-chakra.0.0.4" if new else "1.0.1",
        "pid": 1,
        "nodes": [
            make(1, "[pytorch|profiler|execution_trace|process]", 1),
            make(9, "nccl:all_gather", 8),
            make(2, "## process_group:init ##", 1, GROUPS),
            make(4, "aten::matmul", 1, tensor(6)),
            make(5, "aten::mm", 4, tensor(6)),
            make(
                8,
                "record_param_comms",
                1,
                tensor(100),
                *(12, group, rank // 2, "_allgather_base", [], []),
                out=[tensor(100), tensor(100)],
            ),
            make(10, "record_param_comms", 1, ends, 13, group, other, word, [], [], out=ends),
            make(11, "record_param_comms", 1, 12, group, 0, "wait", [], []),
        ],
    }


@pytest.mark.parametrize("new", [False, True])
def test_what_a_graph_tells_is_read(tmp_path: Path, new: bool) -> None:
    for rank in (1, 3):
        (tmp_path / f"et_{rank}.json").write_text(json.dumps(graph(rank, new=new)))
    assert is_profile(tmp_path)
    profile = read_profile(tmp_path)
    assert [each.rank for each in profile.ranks] == [1, 3], "from the place in the group"
    events, names = profile.events, profile.names
    in_order = [names[place] for place in events.name[events.rank == 0].tolist()]
    assert in_order == ["aten::mm", "_allgather_base", "send", "wait"]
    assert not profile.is_timed
    gathered = events.of_kind(TaskKind.COLLECTIVE)
    assert events.size_bytes[gathered].tolist() == [800, 800], "the larger of in and out"
    assert {profile.groups[each].ranks for each in events.group[gathered].tolist()} == {(1, 3)}
    assert len(set(events.meeting[gathered].tolist())) == 1
    sent, received = (events.of_kind(kind) for kind in (TaskKind.SEND, TaskKind.RECV))
    assert (events.peer[sent].tolist(), events.peer[received].tolist()) == ([1], [0])
    assert events.meeting[sent].tolist() == events.meeting[received].tolist()
    assert (events.of_kind(TaskKind.HOST)).sum() == 4
    assert events.microbatch.max() == UNKNOWN


def test_without_times_it_is_shown_and_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "rank3.json"
    path.write_text(json.dumps(graph(3, new=True)))
    run = CliRunner().invoke
    shown = run(cli.make_app(), ["inspect", str(path)])
    assert "3 operations" not in shown.stdout
    assert "4 operations, called by the host: order, groups and bytes, no times" in shown.stdout
    document = json.loads(run(cli.make_app(), ["inspect", str(path), "--json", "-", "-q"]).stdout)
    assert document["ranks"] == [3]
    assert {each["name"] for each in document["communications"]} == {"recv", "_allgather_base"}
    for use in (stepsim.improve, stepsim.stragglers):
        with pytest.raises(TraceError, match="has no times: expected traces of PyTorch's prof"):
            use(path)
    result = run(cli.make_app(), ["simulate", str(path)])
    assert isinstance(result.exception, TraceError)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "1.0.1", "nodes": []}', "no operator in the graph"),
        ('{"schema": "1.0.1", "nodes": [{"name": "x"}]}', "not a PyTorch execution graph"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1', "not a PyTorch execution graph"),
        ('{"schema": "1.0.1"}', "missing required field `nodes`"),
    ],
)
def test_what_is_no_graph_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "et.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said) as error:
        read_profile(path)
    assert len(str(error.value).splitlines()) == 1


def test_graphs_of_a_recorded_step(shared: Path) -> None:
    """PARAM's DLRM, 8 ranks: as many communications as the NCCL kernels of its PyTorch traces.

    Both list the same collectives in the same order; the graphs are of another step.
    """
    folder = shared / "reference/profiles"
    graphs = read_profile(folder / "chakra/param_dlrm_pytorch_et_8ranks.tar.gz")
    traces = read_profile(folder / "kineto/param_dlrm_8ranks.tar.gz")
    assert graphs.warnings == ()
    assert [each.rank for each in graphs.ranks] == list(range(8))
    communications, _ = counted_operations(graphs)
    assert {each.name: (each.calls, each.on_ranks) for each in communications} == {
        "all_to_allv": (32, 8),
        "allreduce": (24, 8),
        "all_to_all": (8, 8),
    }
    assert sum(each.size_bytes or 0 for each in communications) == 559104 + 19882016 + 1536
    orders = []
    for profile, word in ((graphs, "allreduce"), (traces, "nccl AllReduce")):
        events = profile.events
        met = events.of_kind(TaskKind.COLLECTIVE)
        orders.append([profile.names[each].startswith(word) for each in events.name[met]])
        assert len(set(events.meeting[met].tolist())) == 8
    assert orders[0] == orders[1]
