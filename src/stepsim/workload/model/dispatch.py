"""How tokens reach their experts and come back: which copies are sent, and what kernels take.

An all-to-all sends a copy of a token for each of its experts. DeepEP and HybridEP send one to each
node, along the rails, and there one to each rank that has an expert of it; inside a single node, or
a domain of NVLink, one to each rank. What each exchange takes besides the network is the work of
the dispatcher's kernels, which copy on a few SMs what the network brings, and what is sent ahead of
it: counts and weights.
"""

from math import comb

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne, Noun, shipped
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.model import ModelPart
from stepsim.workload.plan import PlanTable


class Routing(ModelPart):
    """Which experts a token goes to: `top_k` of `experts`.

    Experts lie in `groups`, and those of one token in at most `token_groups` of them.
    """

    experts: AtLeastOne
    top_k: AtLeastOne
    groups: AtLeastOne = 1
    token_groups: AtLeastOne = 1


class DispatchKernel(Noun):
    """Time of a kernel that sends or gathers tokens: a start, and ps per token and per byte.

    The bytes are those of all copies that ranks receive, their own included. `notices` are small
    collectives or kernels ahead of it, each as long as the network takes to launch one.
    """

    start_ps: float = 0.0
    token_ps: float = 0.0
    byte_ps: float = 0.0
    notices: int = 0


def kernel_of(dispatch: ExpertDispatch, way: str) -> DispatchKernel:
    """A dispatcher's kernel on a way: `to` experts, `back`, or one of their gradients.

    Gradients of outputs take the way `to` experts with the layout of the forward, those of inputs
    the way `back`: `gradients_to` and `gradients_back`. Bytes of elements change nothing.
    """
    known = shipped(__file__, "dispatch.toml", dict[str, dict[str, DispatchKernel]])
    return known[dispatch.engine][way]


class ExpertWay(Noun):
    """A way of tokens to the experts of a layer or back, by its name in `dispatch.toml`."""

    routing: Routing
    name: str = "to"

    def asks(
        self, size_bytes: Floats, columns: PlanTable, domain: int, inner: float
    ) -> tuple[Floats, Floats, Floats]:
        """Bytes of `size_bytes` of copies that leave a rank, seconds at least, and notices ahead.

        Where `domain` ranks share a node, a token goes once to a node, or to a rank where all are
        in one; see `reached`. The dispatcher's own kernels take their time to move the copies;
        where several nodes take part, each hands tokens on to its ranks meanwhile, at `inner`
        bytes/s for each rank. Notices are small collectives or kernels ahead of the exchange. All
        are nothing where ep is 1.
        """
        ranks, exchanged = columns.ep * columns.expert_tp, columns.ep > 1
        nodes = np.ceil(ranks / domain)
        sent = size_bytes * self._copies(columns, np.where(nodes > 1, nodes, columns.ep))
        copied = size_bytes * self._copies(columns, columns.ep)
        numbers = np.array([astuple(kernel_of(each, self.name)) for each in ExpertDispatch])
        start, token, byte, notices = numbers[columns.dispatcher.astype(np.int64)].T
        own = (start + token * columns.shard_tokens + byte * copied) / PS_PER_S
        handed = np.where(ranks > domain, copied * (domain - 1) / domain / inner, 0.0)
        least = np.maximum(own, np.where(columns.sends_once > 0, handed, 0.0))
        least = np.where((size_bytes > 0) & exchanged, least, 0.0)
        return sent, least, np.where(exchanged, notices, 0.0)

    def _copies(self, columns: PlanTable, places: Floats) -> Floats:
        """Copies of a token that so many places receive, over its experts."""
        once = reached(self.routing, places) / self.routing.top_k
        return np.where(columns.sends_once > 0, once, 1.0)


def reached(routing: Routing, places: Floats) -> Floats:
    """How many of so many places a token's experts lie on, on average, by number of places.

    Experts are shared out evenly and chosen at random: of n places with E / n experts each a token
    misses one with probability C(E - E/n, k) / C(E, k). For example 8 of 64 experts lie on 5.43 of
    8 ranks. Where a token has experts of `token_groups` of `groups` alone, those are chosen first.
    """
    sizes, where = np.unique(np.asarray(places, np.float64), return_inverse=True)
    found = np.array([_reached(routing, float(size)) for size in sizes])
    return found[where].reshape(np.shape(places))


def _reached(routing: Routing, places: float) -> float:
    if places <= 1:
        return 1.0
    groups, chosen = routing.groups, routing.token_groups if routing.groups > 1 else 1
    own = max(round(groups / places), 1)
    experts = routing.experts / places / own
    most = routing.experts * chosen / groups
    missed = sum(
        comb(own, j) * comb(groups - own, chosen - j) * _missed(routing.top_k, most, j * experts)
        for j in range(min(own, chosen) + 1)
    )
    return places * (1 - missed / comb(groups, chosen))


def _missed(top_k: int, experts: float, own: float) -> float:
    """Probability that none of `top_k` of so many experts is one of a place's own."""
    missed = 1.0
    for drawn in range(top_k):
        missed *= max(experts - own - drawn, 0.0) / max(experts - drawn, 1.0)
    return missed


def map_bytes(routing: Routing, columns: PlanTable) -> Floats:
    """Bytes of the map of tokens to experts that every rank gathers ahead of HybridEP's dispatch.

    It has a byte for each token of all ranks and each expert (`hybrid_ep_buffer.py`, branch
    hybrid-ep of deepseek-ai/DeepEP: `all_gather_into_tensor` of a routing map of bools). Others
    send counts, and the backward has the forward's map.
    """
    hybrid = (ExpertDispatch.HYBRIDEP, ExpertDispatch.HYBRIDEP_FP8)
    gathers = columns.of(lambda plan: plan.dispatched in hybrid)
    return np.where(gathers > 0, columns.shard_tokens * routing.experts * columns.ep, 0.0)


def permuted_bytes(
    routing: Routing, columns: PlanTable, width: float, element: Floats | float = 2.0
) -> Floats:
    """Bytes read and written to lay a rank's tokens out by expert on one way, in one pass.

    Before an all-to-all each token of `width` elements is read once and written for each of its k
    experts, and what arrives is sorted by local expert, read and written (`permute` and
    `sort_chunks_by_idxs` of token_dispatcher.py, Megatron-Core). DeepEP and HybridEP bring a copy
    for each rank, which is read once and written for each expert. On the way back the same is done
    reversed.
    """
    tokens = columns.shard_tokens * width * element
    sorted_twice = np.where(routing.experts > columns.ep, 2.0 * columns.expert_tp, 0.0)
    plain = 1.0 + routing.top_k * (1.0 + sorted_twice)
    once = reached(routing, columns.ep) + routing.top_k
    return tokens * np.where(columns.sends_once > 0, once, plain)
