"""What the kernels of a model's rows ask of a GPU, operator by operator.

Products have blocks by their shapes, as many as the device's processors make waves
of. Attention, scans and what moves bytes have more blocks than anybody counts.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from stepsim.base.structs import replace
from stepsim.workload.model.operators import Amounts, Operator, OperatorKind
from stepsim.workload.model.pricing import PhaseSeconds
from stepsim.workload.overlap import Demands, KernelDemand, KernelKind

_TILES = ((256, 128, 1), (128, 128, 1), (64, 64, 2))
"""Rows and columns of results of a block of a product, and blocks that an SM runs at a time.

Tiles in names of kernels of A100 (`hta`), the large ones first: the first that fills the device is
taken, a guess at what libraries choose.
"""
_STREAMS = KernelDemand(kind=KernelKind.STREAM)
_PRODUCTS = KernelDemand()


class KernelTime(NamedTuple):
    """Seconds of a kernel or of several alike, what each asks of a GPU, how many are launched."""

    seconds: float
    demand: KernelDemand
    launches: float


def kernels_of(
    priced: Iterable[tuple[Operator, PhaseSeconds]], phase: int, processors: int, free_sms: int = 0
) -> tuple[KernelTime, ...]:
    """Kernels of a block of one plan in a phase: 0 forward, 1 input gradient, 2 weight gradient.

    Products have tiles for a device of so many `processors`, and leave `free_sms` of its SMs free.
    """
    found = []
    for operator, price in priced:
        amounts = (operator.forward, operator.input_grad, operator.weight_grad)[phase]
        seconds = float((price.forward, price.input_grad, price.weight_grad)[phase][0])
        if seconds > 0:
            demand = _demand(operator, amounts, phase, processors)
            if free_sms and demand.kind is KernelKind.PRODUCT:
                demand = replace(demand, free_sms=free_sms)
            found.append(KernelTime(seconds, demand, float(amounts.launches[0])))
    return tuple(found)


def shared(kernels: Sequence[KernelTime], seconds: float) -> tuple[KernelTime, ...]:
    """Kernels that run again, so many seconds of them all."""
    whole = sum(each.seconds for each in kernels)
    share = seconds / whole if whole else 0.0
    return tuple(
        KernelTime(each.seconds * share, each.demand, each.launches * min(share, 1.0))
        for each in kernels
    )


def demands_of_row(kernels: Iterable[KernelTime], seconds: float) -> Demands:
    """What the kernels of a row ask that takes so many seconds, waits for the host among them."""
    shares: dict[KernelDemand, float] = {}
    launches = 0.0
    for each in kernels:
        shares[each.demand] = shares.get(each.demand, 0.0) + each.seconds / seconds
        launches += each.launches
    return Demands(tuple((share, each) for each, share in shares.items()), launches)


def _demand(operator: Operator, amounts: Amounts, phase: int, processors: int) -> KernelDemand:
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
