"""Oversubscribed links, shared NICs and broken cables slow a step, unless asked not to."""

from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from helpers import few
from pairs import in_turn

import stepsim
from stepsim.base.axes import Part
from stepsim.base.structs import replace
from stepsim.face.results import Result
from stepsim.files.load import workload_of
from stepsim.files.reading import topology_names
from stepsim.network.topology import Topology

POD = """
name = "pod"
source = "test"

[collective]
launch_latency = "6 us"

[[dimension]]
name = "nvlink"
kind = "switch"
size = 8
bandwidth = "450 GB/s"
latency = "25 ns"
efficiency = 0.8

[[dimension]]
name = "fabric"
kind = "fat_tree"
leaf = {leaf}
oversubscription = {over}.0
size = "auto"
bandwidth = "{bandwidth}"
latency = "500 ns"
endpoint_latency = "3 us"
efficiency = 0.94
"""


def pod(folder: Path, over: int, *, leaf: int = 16, bandwidth: str = "200 Gbps") -> Path:
    path = folder / f"pod{over}.toml"
    path.write_text(POD.format(leaf=leaf, over=over, bandwidth=bandwidth))
    return path


def in_both_modes(workload: Path, topology: Any, **job: Any) -> list[Result]:
    """Runs with links shared with siblings, by default, and with all."""
    bare = replace(workload_of(workload), doubts=())  # there is nothing to weigh
    siblings = stepsim.simulate(bare, topology, **job)
    return [siblings, stepsim.simulate(bare, topology, contention="fair", **job)]


def in_all_modes(workload: Path, topology: Any, **job: Any) -> list[Result]:
    """Those, after the run with links to itself."""
    alone = stepsim.simulate(workload, topology, contention="none", **job)
    return [alone, *in_both_modes(workload, topology, **job)]


def seconds(results: list[Result]) -> list[float]:
    return [each.step_time_s for each in results]


def test_gpt_1024_on_a_48_to_1_fat_tree(workloads: Path, tmp_path: Path) -> None:
    """Stages reduce their gradients at different times: siblings are slower than alone."""
    topology = pod(tmp_path, 48, leaf=48, bandwidth="400 Gbps")
    alone, siblings, _ = results = in_all_modes(workloads / "gpt_1024.txt", topology)
    assert seconds(results) == sorted(seconds(results))
    assert siblings.step_time_s > 1.2 * alone.step_time_s


@pytest.mark.parametrize("over", [2, 4, 8, 16])
def test_oversubscription_of_the_tutorials_pod(over: int, workloads: Path, tmp_path: Path) -> None:
    job: dict[str, Any] = {"npus": 64, "pp": 4, "microbatches": 16}
    workload = workloads / "gpt_tp4.txt"
    full = stepsim.simulate(workload, pod(tmp_path, 1), **job)
    half = stepsim.simulate(workload, pod(tmp_path, over // 2), **job)
    alone, siblings, fair = in_all_modes(workload, pod(tmp_path, over), **job)
    assert alone.step_time_s == pytest.approx(full.step_time_s, rel=0.001)
    assert siblings.step_time_s > 1.01 * half.step_time_s
    assert siblings.step_time_s == pytest.approx(fair.step_time_s, rel=0.01)


def test_dgx_v100_shows_all_of_its_exposed_dp(workloads: Path) -> None:
    """Two GPUs of a node share each NIC."""
    results = in_all_modes(workloads / "gpt_tp4.txt", "dgx-v100")
    exposed = [each.report.breakdown_ps[Part.EXPOSED_DP.key] for each in results]
    assert exposed[1] == pytest.approx(exposed[2], rel=0.01)
    assert exposed[1] > 1.9 * exposed[0]


def boxes(last: int) -> Topology:
    """Sixteen boxes of four NPUs with two cables each to a core; the last box has `last`."""
    fabric = nx.Graph(name="boxes", source="test", node_size=4)
    fabric.add_node("core", kind="switch")
    for box in range(16):
        fabric.add_node(f"box{box}", kind="switch")
        uplink = {"link_class": "uplink", "bandwidth": "25 GB/s", "endpoint_latency": "2 us"}
        count = last if box == 15 else 2
        fabric.add_edge(f"box{box}", "core", count=count, latency="500 ns", **uplink)
        for npu in range(4 * box, 4 * box + 4):
            fabric.add_node(f"npu{npu}", kind="npu")
            inside = {"link_class": "inside", "bandwidth": "100 GB/s", "latency": "200 ns"}
            fabric.add_edge(f"npu{npu}", f"box{box}", **inside)
    return stepsim.load_topology(fabric.to_directed())


def test_the_broken_cable_of_notebook_05(workloads: Path) -> None:
    job: dict[str, Any] = {"npus": 64, "pp": 4, "microbatches": 8}
    whole, broken = (
        seconds(in_all_modes(workloads / "gpt_tp4.txt", boxes(last), **job)) for last in (2, 1)
    )
    costs = [hurt / base for hurt, base in zip(broken, whole, strict=True)]
    assert costs[0] < 1.01
    assert costs[1] > 1.05
    assert costs[1] == pytest.approx(costs[2], rel=0.001)


def test_sensitivity_of_an_oversubscribed_link(workloads: Path, tmp_path: Path) -> None:
    found = stepsim.sensitivity(
        workloads / "gpt_tp4.txt", pod(tmp_path, 8), npus=64, pp=4, microbatches=16
    )
    uplink = next(each for each in found.slopes if each.name == "fabric-up.bandwidth")
    assert uplink.gain > 0.001
    assert uplink.elasticity == pytest.approx(-uplink.gain * 100, rel=0.02)


SHIPPED: dict[str, dict[str, Any]] = {
    "gpt_tp4": {"npus": 64, "pp": 4, "microbatches": 4},
    "moe_128": {"npus": 64, "pp": 2, "microbatches": 2},
}


@pytest.mark.parametrize(
    ("name", "topology"),
    few(
        product(SHIPPED, topology_names()),
        *in_turn([*SHIPPED], ("hgx-h100", "dgx-v100", "rail-only-h100", "tpu-v4")),
    ),
)
def test_siblings_equal_fair_where_only_siblings_meet(
    name: str, topology: str, workloads: Path
) -> None:
    siblings, fair = in_both_modes(workloads / f"{name}.txt", topology, **SHIPPED[name])
    assert siblings.step_time_s == pytest.approx(fair.step_time_s, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("topology", topology_names())
@pytest.mark.parametrize("name", ["gpt_1024", *SHIPPED])
def test_siblings_equal_fair_on_whole_shipped_jobs(
    name: str, topology: str, workloads: Path
) -> None:
    siblings, fair = in_both_modes(workloads / f"{name}.txt", topology)
    assert siblings.step_time_s == pytest.approx(fair.step_time_s, rel=0.01)


def test_traffic_beside_siblings_is_warned_about(workloads: Path) -> None:
    """Gradients reduced during the backward meet messages and exchanges on shared NICs."""
    siblings, fair = in_both_modes(workloads / "moe_128.txt", "dgx-v100", dp_overlap=True)
    assert fair.step_time_s > 1.02 * siblings.step_time_s


def test_the_output_says_who_shares_links(run: Any, workloads: Path) -> None:
    said = {
        "none": "time: one call, its links to itself (--contention none)",
        "siblings": "links shared with the equal groups of its stage (--contention siblings)",
        "fair": "time: one call, its links to itself (--contention fair)",
    }
    for mode, words in said.items():
        job = ("-t", "dgx-v100", "-q", "--show", "communication", "--contention", mode)
        _, out, _ = run("simulate", workloads / "gpt_tp4.txt", *job)
        assert words in out
        assert ("alone" in out) == (mode == "siblings")
