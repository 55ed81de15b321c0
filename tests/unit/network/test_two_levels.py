"""A network in two levels, as closed forms see it: which cables carry a collective."""

import numpy as np
import pytest

from stepsim.base.axes import CollectiveKind
from stepsim.files.load import topology_of
from stepsim.step.model_plan import interconnect_of


def all_gather_s(topology: str, ranks: int) -> float:
    """Seconds of a large all-gather of neighbours, by the closed form."""
    found = interconnect_of(topology_of(topology))
    size, count, stride = (np.array([float(each)]) for each in (8e9, ranks, 1))
    return float(found.seconds(CollectiveKind.ALL_GATHER, size, count, stride)[0])


@pytest.mark.parametrize(
    ("topology", "bandwidth"),
    [
        ("mi300x-8x400g", 7 * 64e9 * 0.75),  # a cable to each of the others
        ("tpu-v5p", 2 * 100e9 * 0.9),  # both ways round one axis
        ("dgx-v100", 6 * 25e9 * 0.8882),  # six NVLinks
        ("hgx-a100", None),  # a switch: the one link of an NPU
    ],
)
def test_the_cables_of_an_npu_carry_a_collective(topology: str, bandwidth: float | None) -> None:
    network = topology_of(topology)
    found = interconnect_of(network)
    one = network.link_classes[0].capacity
    assert found.inner == pytest.approx(one if bandwidth is None else bandwidth)


def test_of_a_mesh_a_group_uses_the_cables_between_its_members() -> None:
    whole = interconnect_of(topology_of("mi300x-8x400g"))
    assert whole.meshed
    two, eight = all_gather_s("mi300x-8x400g", 2), all_gather_s("mi300x-8x400g", 8)
    assert two > 2 * eight, "two ranks have one cable, eight have seven each"
    switched = all_gather_s("hgx-h100", 2), all_gather_s("hgx-h100", 8)
    assert switched[0] < switched[1]
