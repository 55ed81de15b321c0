"""What kernels do, by their names and by the operators that launched them.

Names are read by what their parts mean in any library (cuBLAS and hipBLASLt, CUTLASS and CK, cuDNN,
FlashAttention, TransformerEngine, AITER, Triton), not by a list of names that were seen. A name
that says only that elements are touched, such as `vectorized_elementwise_kernel`, is told apart by
its functor or by its operator.
"""

import re
from enum import StrEnum
from math import prod

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.structs import Noun, Numbers
from stepsim.measured.profile.events import Events, HostOperator, Profile, combined, unknown
from stepsim.measured.profile.kernels import kernel_names
from stepsim.run.spans import UNKNOWN, TaskKind


class KernelClass(StrEnum):
    """What a kernel does; the value is what tables call it."""

    PRODUCTS = "products"
    EXPERTS = "products of experts"
    BATCHED = "batched products"
    ATTENTION = "attention"
    MIXERS = "state mixers"
    CONVOLUTIONS = "convolutions"
    NORMS = "norms"
    ACTIVATIONS = "activations"
    ELEMENTWISE = "elementwise"
    CASTS = "casts and copies"
    ROUTING = "routing of tokens"
    EMBEDDING = "embedding"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    OTHER = "not recognised"


_C = KernelClass


# Classes by name that are of another one where the operator says so.
_TOLD_BY = {
    _C.PRODUCTS: (_C.EXPERTS, _C.CONVOLUTIONS),
    _C.ACTIVATIONS: (_C.CONVOLUTIONS,),
    _C.ATTENTION: (_C.LOSS,),
}
_BATCHED = re.compile(r"::(?:bmm|baddbmm)\b")
_UNFUSED = re.compile(r"softmax|bmm", re.IGNORECASE)
SIMULATED = "stepsim::"
"""What the names of kernels of simulated steps begin with: they mean nothing to others."""
# A softmax over so many sides is not one of attention's scores: it chooses experts.
_ROUTER_SIDES = 2
_MATRIX = 2


class KernelWork(Noun):
    """What a kernel does: its class, and of a product its three `sides`, ascending.

    Attention is `unfused` where it is made of products and a softmax.
    """

    work: KernelClass
    sides: Numbers = ()
    unfused: bool = False


def kernel_work(name: str, operator: HostOperator | None = None) -> KernelWork:
    """What a kernel does, by its name and by the operator that launched it."""
    own = "" if name.startswith(SIMULATED) else name
    called = operator.name if operator else ""
    work = _class_of(own, called)
    shapes = operator.sides if operator else ()
    if work in (_C.PRODUCTS, _C.BATCHED) and _class_by(called) is _C.ATTENTION:
        return KernelWork(work=_C.ATTENTION, unfused=True)
    if work is _C.ATTENTION and _is_softmax(own, called):
        narrow = bool(shapes) and len(shapes[0]) <= _ROUTER_SIDES
        return KernelWork(work=_C.ROUTING if narrow else work, unfused=not narrow)
    is_product = work in (_C.PRODUCTS, _C.EXPERTS)
    return KernelWork(work=work, sides=product_sides(shapes) if is_product else ())


def _class_of(name: str, called: str) -> KernelClass:
    by_name, by_operator = _class_by(name), _class_by(called)
    if by_name in (_C.PRODUCTS, None) and _BATCHED.search(called):
        return _C.BATCHED
    if by_name in _TOLD_BY and by_operator in _TOLD_BY[by_name]:
        return by_operator
    known = by_name or by_operator
    return known or _class_by(name, general=True) or _class_by(called, general=True) or _C.OTHER


def _class_by(text: str, *, general: bool = False) -> KernelClass | None:
    """The class that a text says by itself, or in `general` words, which others may use too."""
    names = kernel_names()
    rules = names.general if general else names.specific
    found = (_C(each["work"]) for each in rules if _fits(each["pattern"], text))
    return next(found, None) if text else None


def _fits(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _is_softmax(name: str, called: str) -> bool:
    """Whether attention is a kernel of its parts: a fused kernel has a name that says attention."""
    rules = kernel_names().specific
    fused = next(each["pattern"] for each in rules if each["work"] == _C.ATTENTION)
    return not _fits(fused, name or called) and bool(_UNFUSED.search(f"{name} {called}"))


def product_sides(shapes: tuple[Numbers, ...]) -> Numbers:
    """Rows, depth and columns of a product by the shapes of its operands, ascending.

    The three are the same of a product and of both its gradients. All sides of an operand but the
    last are rows, and of weights of groups the first is no side. () where shapes tell no product.
    """
    operands = [shape for shape in shapes if len(shape) >= _MATRIX]
    if len(operands) < _MATRIX:
        return ()
    first, second = operands[-2], operands[-1]
    rows, depth = prod(first[:-1]), first[-1]
    inner, outer = second[-2:]
    if depth not in (inner, outer):
        return ()
    return tuple(sorted((rows, depth, outer if depth == inner else inner)))


class KernelWorks(Noun, eq=False):
    """What kernels do: `number` of every operation is a place in `works`, `UNKNOWN` of others."""

    works: tuple[KernelWork, ...]
    number: Ints

    @classmethod
    def of(cls, profile: Profile) -> "KernelWorks":
        """The works of a profile; batched products beside a softmax are part of attention."""
        events = profile.events
        compute = np.flatnonzero(events.kind == TaskKind.COMPUTE)
        known, place = combined(events.name[compute], events.operator[compute])
        works = [
            kernel_work(profile.names[name], profile.operators[at] if at != UNKNOWN else None)
            for name, at in known
        ]
        if any(work.unfused for work in works):
            scores = KernelWork(work=KernelClass.ATTENTION, unfused=True)
            works = [scores if work.work is KernelClass.BATCHED else work for work in works]
        number = unknown(len(events))
        number[compute] = place
        return cls(works=tuple(works), number=number)

    @property
    def has_sides(self) -> bool:
        """Whether the sides of some product are known."""
        return any(work.sides for work in self.works)

    def products(self, events: Events) -> Ints:
        """Operations that are products, rank by rank in the order in which they start."""
        plain = [work.work is KernelClass.PRODUCTS for work in self.works]
        chosen = np.flatnonzero(np.array([*plain, False], np.bool_)[self.number])
        order = np.lexsort((events.start_ps[chosen], events.rank[chosen]))
        return np.asarray(chosen[order], np.int64)

    def in_order_of(self, products: Ints, other: "KernelWorks", others: Ints) -> "KernelWorks":
        """The works where the n-th product has the sides of the n-th one of another profile."""
        number = self.number.copy()
        number[products] = other.number[others] + len(self.works)
        return KernelWorks(works=(*self.works, *other.works), number=number)
