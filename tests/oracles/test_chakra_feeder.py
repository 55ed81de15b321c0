"""Written Chakra files run to their end by rules like those of ASTRA-sim's feeder, in a few lines.

The rules are written from what is known of that feeder; its program was not run beside them.
A node is free once all nodes that it names have ended. Of free nodes a rank issues the one of the
lowest id first; it runs one compute and one collective at a time, and a node that finds its place
taken waits. A collective ends when all ranks of its group have issued it, a receive when its
message was sent. What is left when nothing can end is what ASTRA-sim reports as unreleased nodes.
"""

import json
from collections import Counter, defaultdict, deque
from heapq import heapify, heappop, heappush
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest
from google.protobuf.proto import parse_length_prefixed
from helpers import Run

from stepsim.files.traces import chakra_messages
from stepsim.files.traces.chakra import GROUPS_FILE, ChakraNode

COLLECTIVE, SEND, RECV = ChakraNode.COMM_COLL, ChakraNode.COMM_SEND, ChakraNode.COMM_RECV


class Node(NamedTuple):
    """What the feeder reads of a node."""

    kind: int
    parents: tuple[int, ...]
    group: str
    message: tuple[int, int, int]


def read_nodes(path: Path) -> dict[int, Node]:
    """The nodes of a rank by their ids; each id stands once, in ascending order."""
    nodes: dict[int, Node] = {}
    stream = BytesIO(path.read_bytes())
    parse_length_prefixed(chakra_messages.MetadataMessage, stream)
    while message := parse_length_prefixed(chakra_messages.NodeMessage, stream):
        told = {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}
        assert message.id not in nodes, (path, message.id)
        source, target, tag = (told.get(name, -1) for name in ("comm_src", "comm_dst", "comm_tag"))
        parents = (*message.data_deps, *message.ctrl_deps)
        group = told.get("pg_name", "")
        nodes[message.id] = Node(message.type, parents, group, (source, target, tag))
    return nodes


class Feeder:
    """Plays the nodes of all ranks; afterwards `left` counts those of a rank that never ended."""

    def __init__(self, ranks: dict[int, dict[int, Node]], groups: dict[str, list[int]]) -> None:
        self.ranks, self.groups = ranks, groups
        self.children: dict[int, dict[int, list[int]]] = {}
        self.waits: dict[int, Counter[int]] = {}
        self.free: dict[int, list[int]] = {}
        self.taken: set[tuple[int, bool]] = set()
        self.issued: Counter[tuple[int, str]] = Counter()
        self.arrived: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.sent: Counter[tuple[int, int, int]] = Counter()
        self.received: dict[tuple[int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
        self.ended: deque[tuple[int, int]] = deque()
        self.left = {rank: len(nodes) for rank, nodes in ranks.items()}
        for rank, nodes in ranks.items():
            self._load(rank, nodes)
        for rank in ranks:
            self._issue(rank)
        while self.ended:
            self._end(*self.ended.popleft())

    def _load(self, rank: int, nodes: dict[int, Node]) -> None:
        children: dict[int, list[int]] = defaultdict(list)
        for number, node in nodes.items():
            assert set(node.parents) <= nodes.keys(), f"rank {rank}, node {number}"
            for parent in set(node.parents):
                children[parent].append(number)
        self.children[rank] = children
        self.waits[rank] = Counter({n: len(set(node.parents)) for n, node in nodes.items()})
        self.free[rank] = [number for number, node in nodes.items() if not node.parents]
        heapify(self.free[rank])

    def _issue(self, rank: int) -> None:
        """Issue what is free, the lowest id first, as far as there is a place to run."""
        later = []
        while self.free[rank]:
            number = heappop(self.free[rank])
            node = self.ranks[rank][number]
            place = (rank, node.kind == COLLECTIVE)
            if node.kind in (SEND, RECV):
                self._message(rank, number, node)
            elif place in self.taken:
                later.append(number)
            else:
                self.taken.add(place)
                self._start(rank, number, node)
        for number in later:
            heappush(self.free[rank], number)

    def _message(self, rank: int, number: int, node: Node) -> None:
        if node.kind == SEND:
            assert node.message[0] == rank
            self.sent[node.message] += 1
            self.ended.append((rank, number))
            waiting = self.received[node.message]
        else:
            assert node.message[1] == rank
            waiting = self.received[node.message]
            waiting.append((rank, number))
        while waiting and self.sent[node.message]:
            self.sent[node.message] -= 1
            self.ended.append(waiting.popleft())

    def _start(self, rank: int, number: int, node: Node) -> None:
        """A compute ends; a collective when the last rank of its group has come."""
        if node.kind != COLLECTIVE or not node.group:
            self.ended.append((rank, number))
            return
        meeting = (node.group, self.issued[rank, node.group])
        self.issued[rank, node.group] += 1
        self.arrived[meeting].append((rank, number))
        members = self.groups[node.group]
        assert rank in members
        if len(self.arrived[meeting]) == len(members):
            self.ended += self.arrived.pop(meeting)

    def _end(self, rank: int, number: int) -> None:
        node = self.ranks[rank][number]
        if node.kind not in (SEND, RECV):
            self.taken.discard((rank, node.kind == COLLECTIVE))
        self.left[rank] -= 1
        for child in self.children[rank][number]:
            self.waits[rank][child] -= 1
            if not self.waits[rank][child]:
                heappush(self.free[rank], child)
        self._issue(rank)


def unreleased(folder: Path) -> dict[int, int]:
    """Nodes of every rank that never end, of the ranks that have such."""
    paths = {int(path.name.split(".")[1]): path for path in folder.glob("*.et")}
    ranks = {rank: read_nodes(path) for rank, path in sorted(paths.items())}
    played = Feeder(ranks, json.loads((folder / GROUPS_FILE).read_text()))
    return {rank: count for rank, count in played.left.items() if count}


STEPS = [
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 6"),
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 8 --schedule interleaved:2"),
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 6 --schedule zb-h1"),
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 6 --schedule zb-v"),
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 8 --schedule dualpipe"),
    ("gpt_tp4.txt", "--npus 32 --pp 4 --microbatches 6 --dp-overlap"),
    ("moe_128.txt", "--npus 64 --ep-layout folded --microbatches 2"),
    ("gpt2", "--npus 16 --pp 2 --tp 2 --microbatches 4"),
]


@pytest.mark.parametrize(("work", "options"), STEPS)
def test_no_node_is_left(
    work: str, options: str, run: Run, workloads: Path, tmp_path: Path
) -> None:
    path, folder = workloads / work, tmp_path / "chakra"
    words = (
        "simulate",
        path if path.exists() else work,
        "-t",
        "hgx-h100",
        "-q",
        "--chakra",
        folder,
    )
    code, _, err = run(*map(str, words), *options.split())
    assert code == 0, err
    assert unreleased(folder) == {}


@pytest.mark.slow
def test_no_node_is_left_on_512_npus(run: Run, workloads: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chakra"
    words = ("simulate", workloads / "gpt_1024.txt", "-t", "hgx-h100", "--npus", 512)
    assert run(*map(str, words), "-q", "--chakra", str(folder))[0] == 0
    assert unreleased(folder) == {}
