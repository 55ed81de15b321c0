"""Chakra traces: what is written is read, what others write is replayed, the rest is one line."""

import json
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from google.protobuf.proto import serialize_length_prefixed
from helpers import examples
from hypothesis import given
from random_jobs import Job, jobs, networks

import stepsim
from stepsim.base.errors import OutputError, TraceError
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.traces.chakra import ChakraNode
from stepsim.files.traces.chakra_messages import AttributeMessage, MetadataMessage, NodeMessage
from stepsim.files.traces.chakra_write import write_chakra
from stepsim.files.traces.forms import is_profile, read_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.network.topology import Topology
from stepsim.run.spans import TaskKind


def packed(message: Any) -> bytes:
    """A message after its length."""
    out = BytesIO()
    serialize_length_prefixed(message, out)
    return out.getvalue()


METADATA = packed(MetadataMessage(attr=[AttributeMessage(name="schema", string="1.0.2-chakra")]))


def node(
    number: int,
    kind: ChakraNode,
    *,
    after: tuple[int, ...] = (),
    us: int = 0,
    name: str = "",
    ends: Mapping[str, int] = {},
    **attributes: int | str,
) -> bytes:
    """A node as other tools write it."""
    told = {**ends, **attributes}
    return packed(
        NodeMessage(
            id=number,
            name=name or f"node {number}",
            type=kind,
            data_deps=after,
            duration_us=us,
            attr=[
                AttributeMessage(
                    name=key, **{"string" if isinstance(value, str) else "int64": value}
                )
                for key, value in told.items()
            ],
        )
    )


def written(folder: Path, *ranks: list[bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        (folder / f"trace.{rank}.et").write_bytes(METADATA + b"".join(nodes))
    return folder


def a_rank(us: int, pg_name: str = "") -> list[bytes]:
    """A compute, an all-reduce of it, and a compute beside the all-reduce."""
    return [
        node(0, ChakraNode.COMP, us=us),
        node(1, ChakraNode.COMM_COLL, after=(0,), us=5, comm_type=0, comm_size=64, pg_name=pg_name),
        node(2, ChakraNode.COMP, after=(0,), us=3),
        node(3, ChakraNode.COMP, after=(1, 2), us=1),
    ]


def ends_us(profile: Profile) -> list[int]:
    return list(profile.events.end_ps // 10**6)


@given(job=jobs(), network=networks())
@examples(15)
def test_a_simulated_step_is_the_same_step(job: Job, network: Topology) -> None:
    result = stepsim.simulate(job.workload, network, **job.options())
    profile = profile_of_step(result.timeline, source="job")
    with TemporaryDirectory() as name:
        folder = Path(name) / "step"
        assert len(write_chakra(profile, folder)) == result.report.npus + 1
        again = read_profile(folder)
    assert again.warnings == ()
    for column in ("start_ps", "end_ps", "kind", "rank", "peer", "phase", "chunk", "microbatch"):
        found = getattr(again.events, column)
        assert (found == getattr(profile.events, column)).all(), column
    waits = pipeline_waits(again)
    assert waits.steps_ps(waits.own_ps, 0 * waits.own_ps).tolist() == [result.report.step_time_ps]


def test_nodes_without_starts_begin_once_they_can(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", a_rank(10), a_rank(20))
    assert is_profile(folder)
    profile = read_profile(folder)
    assert "each begins once what it depends on has ended" in profile.warnings[0]
    assert ends_us(profile) == [10, 25, 13, 26, 20, 25, 23, 26]


def test_groups_beside_the_traces_meet_apart(tmp_path: Path) -> None:
    ranks = [a_rank(us, pg_name=name) for us, name in zip((1, 2, 3, 4), "0011", strict=True)]
    folder = written(tmp_path / "run", *ranks)
    (folder / "comm_groups.json").write_text(json.dumps({"0": [0, 1], "1": [2, 3]}))
    profile = read_profile(folder)
    assert [group.ranks for group in profile.groups if group.ranks] == [(0, 1), (2, 3)]
    ends = profile.events.end_ps[profile.events.of_kind(TaskKind.COLLECTIVE)]
    assert (ends // 10**6).tolist() == [7, 7, 9, 9]
    assert not any("not on all" in warning for warning in profile.warnings)


def test_messages_meet_by_ends_and_tag(tmp_path: Path) -> None:
    ends = {"comm_src": 0, "comm_dst": 1, "comm_size": 8}
    sender = [
        node(0, ChakraNode.COMP, us=4),
        node(1, ChakraNode.COMM_SEND, after=(0,), us=2, comm_tag=7, ends=ends),
        node(2, ChakraNode.COMM_SEND, after=(1,), us=2, comm_tag=8, ends=ends),
    ]
    receiver = [
        node(0, ChakraNode.COMM_RECV, us=2, comm_tag=8, ends=ends),
        node(1, ChakraNode.COMM_RECV, us=2, comm_tag=7, ends=ends),
    ]
    profile = read_profile(written(tmp_path / "run", sender, receiver))
    assert ends_us(profile) == [4, 6, 8, 8, 6]


def test_a_call_of_the_host_is_no_collective_and_a_stream_runs_in_order(tmp_path: Path) -> None:
    nodes = [
        node(0, ChakraNode.COMM_COLL, us=2, name="c10d::allreduce_", is_cpu_op=1, tid=1),
        node(1, ChakraNode.COMM_COLL, after=(0,), us=9, comm_type=0, is_cpu_op=0, tid=7),
        node(2, ChakraNode.COMP, after=(0,), us=4, is_cpu_op=0, tid=7),
    ]
    profile = read_profile(written(tmp_path / "run", nodes))
    kinds = [TaskKind.HOST, TaskKind.COLLECTIVE, TaskKind.COMPUTE]
    assert profile.events.kind.tolist() == kinds
    assert ends_us(profile) == [2, 11, 15]


def test_communications_without_durations_are_told(tmp_path: Path) -> None:
    nodes = [node(0, ChakraNode.COMM_COLL, comm_type=0, comm_size=64), node(1, ChakraNode.COMP)]
    profile = read_profile(written(tmp_path / "run", nodes))
    assert any("1 communications have no duration" in each for each in profile.warnings)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (METADATA + a_rank(1)[0][:-3], "not a Chakra trace"),
        (METADATA, "no nodes"),
        (METADATA + a_rank(1)[0] * 2, "two nodes have one id"),
        (METADATA + b"\x02\x0a\xff", "not a Chakra trace"),
        (METADATA + b"\x01\x0b", "not a Chakra trace"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "trace.0.et"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=why) as error:
        read_profile(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_circle_is_one_line(tmp_path: Path) -> None:
    nodes = [node(0, ChakraNode.COMP, after=(1,)), node(1, ChakraNode.COMP, after=(0,))]
    with pytest.raises(TraceError, match="waits for itself"):
        read_profile(written(tmp_path / "run", nodes))


def test_groups_that_are_no_lists_of_ranks_are_one_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", a_rank(1))
    (folder / "comm_groups.json").write_text('{"0": "all"}')
    with pytest.raises(TraceError, match=r"comm_groups\.json: expected lists of ranks"):
        read_profile(folder)


def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path / "run", a_rank(1)))
    with pytest.raises(OutputError, match="not empty"):
        write_chakra(profile, tmp_path / "run")


def test_chakras_own_trace_is_read(shared: Path) -> None:
    path = shared / "reference/profiles/chakra/chakra_feeder_tests.tar.gz"
    assert tarfile.is_tarfile(path)
    profile = read_profile(path)
    events = profile.events
    assert len(events) == 3664
    assert int(events.of_kind(TaskKind.COLLECTIVE).sum()) == 7
    compute = int(events.duration_ps[events.of_kind(TaskKind.COMPUTE)].sum())
    # one stream runs the kernels, so that the step is hardly longer than their sum
    assert compute < int(profile.step_times_ps()[0]) < 1.02 * compute
