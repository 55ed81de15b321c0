"""Shipped machines against the public tables of NCCL that their protocols were set by."""

import os
from pathlib import Path

import numpy as np
import pytest
from accuracy_nccl import errors_of

from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.network.topology.dimension import GOOD, SIZE_BANDS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared")) / "reference"
NCCL = REFERENCE / "measured" / "nccl"
ONE_NODE = REFERENCE / "kernels" / "nccl_one_node.csv"
CASES = [
    ("hgx-a100", ONE_NODE, "A100"),
    ("hgx-a100", NCCL / "nccl_allreduce_a100_1_128gpus.csv", "A100"),
    ("hgx-h100", ONE_NODE, "H100"),
    ("hgx-h100", NCCL / "nccl_allreduce_h100_2nodes.csv", "H100"),
    ("hgx-h200", ONE_NODE, "H200"),
    ("hgx-h800", NCCL / "echo_cluster_microbench.csv", "H800"),
    ("hgx-b200", ONE_NODE, "B200,!GB200"),
    ("gb200-nvl72", ONE_NODE, "GB200"),
    ("gb300-nvl72", ONE_NODE, "GB300"),
    ("hgx-b300", ONE_NODE, "B300,!GB300"),
]


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference material is not here")
@pytest.mark.parametrize(("topology", "table", "source"), CASES)
def test_mean_errors_are_within_what_counts_as_good(
    topology: str, table: Path, source: str
) -> None:
    curves = read_measurements([table]).choose(source).without_outliers()[0].curves
    for kind in {curve.kind for curve in curves}:
        alike = [curve for curve in curves if curve.kind == kind and curve.ranks > 1]
        sizes = np.concatenate([curve.size_bytes for curve in alike])
        errors = np.abs(np.concatenate([errors_of(topology, curve) for curve in alike]))
        for (first, end), good in zip(SIZE_BANDS, GOOD, strict=True):
            inside = errors[(sizes >= first) & (sizes < end)]
            assert inside.mean() <= good, (kind, first)


def test_a_tree_is_launched_and_fills_nics_as_the_ring_of_its_protocol() -> None:
    """Where only two nodes were measured, this is what tells its steps between nodes."""
    topology = topology_of("hgx-h100")
    protocols = {(each.name, *each.algorithms): each for each in topology.library.protocols}
    for name in ("LL", "LL128", "Simple"):
        ring, tree = protocols[name, "ring"], protocols[name, "double_binary_tree"]
        launches = [topology.launch_latency_ps + each.launch_ps for each in (ring, tree)]
        assert launches[1] == pytest.approx(launches[0], rel=0.3)
        rates = [each.rates["fabric"] for each in (ring, tree)]
        assert rates[1] == pytest.approx(rates[0], rel=0.3)


def test_sixteen_mebibytes_are_far_from_the_bandwidth_of_large_sizes() -> None:
    """Measured bus bandwidth at 16 MiB is 36 % of its peak: 2 nodes of 8 H100."""
    from stepsim import collective_time

    times = [collective_time("hgx-h100", "all_reduce", size, range(16)) for size in (2**24, 2**34)]
    ramp = (2**24 / times[0]) / (2**34 / times[1])
    assert ramp == pytest.approx(0.36, abs=0.04)


def test_a_message_pays_a_launch() -> None:
    """64 KiB in a node of H800 took 42 us, 8 MiB took 100 us one way."""
    from stepsim import collective_time

    small, large = (
        collective_time("hgx-h800", "send_recv", size, [0, 1]) for size in (2**16, 2**23)
    )
    assert small == pytest.approx(42e-6, rel=0.1)
    assert large == pytest.approx(100e-6, rel=0.1)
