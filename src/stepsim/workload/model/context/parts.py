"""Nouns of a layer's parts: an exchange of ranks, and a block of operators that it follows."""

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import ExpertMlp
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.operators import Operator
from stepsim.workload.rows import CollectiveKind, Group


class Exchange(Struct, frozen=True, kw_only=True):
    """One collective of a block; `size_bytes` as in CommOp, an array over plans, 0 where none.

    One that carries tokens to or from their experts names these in `experts`. One with `beside` 1
    runs beside the operators of the block that follows in its pass, one with 0 before them.
    """

    kind: CollectiveKind
    group: Group
    size_bytes: Floats
    experts: ExpertMlp | None = None
    beside: Floats | float = 0.0

    def sent_bytes(self, columns: PlanColumns, domain: int) -> Floats:
        """What ranks send where `domain` of them share a node: see `sent_share`."""
        if self.experts is None:
            return self.size_bytes
        return self.size_bytes * sent_share(self.experts, columns, domain)


def sent_share(mlp: ExpertMlp, columns: PlanColumns, domain: int) -> Floats:
    """Share of the tokens' copies that leave a rank, less than 1 where a token is sent once a node.

    Of n nodes (ranks, if there is one node) that a token's k experts lie on at random, n (1 - (1 -
    1/n)^k) differ. Experts of `token_groups` of `groups` lie on as many nodes at most, or on their
    part of the nodes where there are more nodes than groups. For example 8 experts on 8 nodes are
    on 5.25 of them: 0.66 of the copies leave.
    """
    nodes = np.ceil(columns.ep * columns.expert_tp / domain)
    reached = np.where(nodes > 1, nodes, columns.ep)
    if mlp.groups > 1:
        limited = np.minimum(reached, mlp.token_groups * np.maximum(reached / mlp.groups, 1.0))
        reached = np.where(nodes > 1, limited, reached)
    once = reached * (1 - (1 - 1 / reached) ** mlp.top_k) / mlp.top_k
    return np.where((columns.sends_once > 0) & (columns.ep > 1), once, 1.0)


class Block(Struct, frozen=True, kw_only=True):
    """Operators in order, and the exchanges that follow them in each pass."""

    name: str
    operators: tuple[Operator, ...]
    forward: tuple[Exchange, ...] = ()
    backward: tuple[Exchange, ...] = ()
