"""Groups that act together: what they put on the links that one of them crosses, by hand."""

import numpy as np
from unit.network.test_wirings import dim, network

from stepsim.base.structs import replace
from stepsim.network.collectives import Beside, FlowStep, Siblings
from stepsim.network.collectives.flows import trace

EXCHANGE = FlowStep(np.array([[0, 1], [1, 0]]), 1.0)
"""Both members send all to each other."""


LINE = network(dim("line", 4))
"""NPUs in a row, a link each way between neighbours."""


def siblings(*groups: list[list[int]]) -> Siblings:
    """Groups of each look, the first of which is the look."""
    arrays = tuple(np.array(each) for each in groups)
    return Siblings(topology=LINE, looks=tuple(each[0] for each in arrays), groups=arrays)


def test_groups_that_meet_share_the_busiest_link() -> None:
    """0 with 2 and 1 with 3 of a row: both cross the link between 1 and 2."""
    together = siblings([[0, 2]], [[1, 3]])
    shape = trace(LINE, np.array([0, 2]), EXCHANGE)
    assert shape.loads.tolist() == [1.0]
    shared = Beside(siblings=together, look=0).shared(shape, [EXCHANGE, EXCHANGE])
    assert shared.shared.tolist() == [2.0]
    assert shared.loads.tolist() == [1.0]
    assert shared.alone.shared.tolist() == [1.0]


def test_groups_that_do_not_meet_leave_the_shape_as_it_is() -> None:
    together = siblings([[0, 1], [2, 3]])
    shape = trace(LINE, np.array([0, 1]), EXCHANGE)
    assert Beside(siblings=together, look=0).shared(shape, [EXCHANGE]) is shape


def test_only_links_that_a_look_crosses_count_for_it() -> None:
    """0 with 1 crosses the first link only, where 0 with 3 is beside it; 2 with 3 is elsewhere."""
    together = siblings([[0, 1]], [[0, 3], [2, 3]])
    (near, of_near), (far, of_far) = (together.loads(i, [EXCHANGE, EXCHANGE]) for i in (0, 1))
    assert of_near.tolist() == [2.0, 2.0]
    assert sorted(of_far.tolist()) == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert set(near.tolist()) < set(far.tolist())


def test_each_look_has_a_step_of_its_own() -> None:
    """The second look sends half as much."""
    together, half = siblings([[0, 2]], [[1, 3]]), replace(EXCHANGE, fraction=0.5)
    assert together.loads(0, [EXCHANGE, half])[1].max() == 1.5


def test_one_group_has_no_siblings() -> None:
    alone = siblings([[0, 2]])
    shape = trace(LINE, np.array([0, 2]), EXCHANGE)
    assert alone.count == 1
    assert Beside(siblings=alone, look=0).shared(shape, [EXCHANGE]) is shape


def test_equal_siblings_have_one_key_and_places_among_them_differ() -> None:
    one, same, other = (siblings(groups) for groups in ([[0, 1]], [[0, 1]], [[0, 2]]))
    assert one.key == same.key != other.key
    several = siblings([[0, 2]], [[1, 3]])
    assert Beside(siblings=several, look=0).key() != Beside(siblings=several, look=1).key()
