"""What the kernels of a model's rows ask of a GPU, operator by operator.

Products have blocks by their shapes, as many as the device's processors make waves
of. Attention, scans and what moves bytes have more blocks than anybody counts.
"""

from math import ceil

from stepsim.base.structs import replace
from stepsim.workload.model.operators import Operator, OperatorKind
from stepsim.workload.overlap import KernelDemand, KernelKind
from stepsim.workload.rows import Kernel

_TILES = ((256, 128, 1), (128, 128, 1), (64, 64, 2))
"""Rows and columns of results of a block of a product, and blocks that an SM runs at a time.

Tiles in names of kernels of A100 (`hta`), the large ones first: the first that fills the device is
taken, a guess at what libraries choose.
"""
_STREAMS = KernelDemand(kind=KernelKind.STREAM)
_PRODUCTS = KernelDemand()


def kernel_of(
    operator: Operator, phase: int, seconds: float, processors: int, free_sms: int
) -> Kernel:
    """An operator's kernel of one plan in a phase: 0 forward, 1 input gradient, 2 weight gradient.

    Products have tiles for a device of so many `processors`, and leave `free_sms` of its SMs free.
    """
    demand = _demand(operator, phase, processors)
    if free_sms and demand.kind is KernelKind.PRODUCT:
        demand = replace(demand, free_sms=free_sms)
    return operator.kernel(phase, seconds, demand)


def _demand(operator: Operator, phase: int, processors: int) -> KernelDemand:
    if operator.kind is OperatorKind.MEMORY:
        return _STREAMS
    if operator.groups is not None:
        shape = operator.groups[phase]
        return KernelDemand(blocks=int(shape.tiles()[0]), per_sm=(2,))
    if operator.sides is None:
        return _PRODUCTS
    tokens, inner, outer = (float(side[0]) for side in operator.sides)
    rows, columns = ((tokens, outer), (tokens, inner), (inner, outer))[phase]
    return _product(rows, columns, processors)


def _product(rows: float, columns: float, processors: int) -> KernelDemand:
    """A product of so many results, in the largest tiles of which there is one for every SM."""
    counts = [(ceil(rows / high) * ceil(columns / wide), per_sm) for high, wide, per_sm in _TILES]
    blocks, per_sm = next((each for each in counts if each[0] >= processors), counts[-1])
    return KernelDemand(blocks=blocks, per_sm=(per_sm,))
