"""Who holds which part of parameters and gradients: ZeRO 0 to 3, FSDP and HSDP."""

from collections.abc import Iterator

from msgspec import Struct

from stepsim.base.units import PS_PER_S
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.plan import ModelPlan
from stepsim.workload.rows import CollectiveKind, CommOp, Group, PerParameter, Phase, Role, Shards

_PARAMETER = 2
"""Bytes of a gathered parameter."""
_OWNED, _OWNED_WHOLE, _EVERY = 30.0, 26.0, 8.0
"""Bytes that an optimizer moves per owned parameter in shards, or whole, and per parameter."""


class Sharding(Struct, frozen=True, kw_only=True):
    """What ZeRO's stage means for the collectives of parameters and gradients.

    From stage 2 on parameters are gathered layer by layer, in a pipeline at stage 2 once a step,
    for ranks keep them whole until the last microbatch (torch/distributed/pipelining/stage.py);
    with `dp_overlap` stage 1 gathers each layer's before its first forward, else all at the end of
    the step.
    """

    plan: ModelPlan
    framework: Framework
    device: Device

    @property
    def shards(self) -> int:
        """Parts of each parameter that is gathered layer by layer; 1 where none is."""
        return self.plan.shards if self.plan.zero >= 2 else 1

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.plan.stage_ranks // (self.plan.ep * self.plan.expert_degree)

    def shards_of(self, dense: int, routed: int) -> Shards | None:
        """How so many parameters are brought together; None where ranks have them."""
        zero, again = self.plan.zero, self.plan.zero == 3 and self.plan.reshard
        if zero >= 2:
            return Shards(
                gather=tuple(self._gathers(Group.FSDP, dense, routed, ParallelAxis.FSDP)),
                reduce=tuple(self._reductions(dense, routed)),
                again=again,
                once=zero == 2 and self.plan.pp > 1,
            )
        if zero == 1 and self.plan.dp_overlap:
            gather = self._gathers(Group.DP_CP, dense, routed, ParallelAxis.DP)
            return Shards(gather=tuple(gather), once=True)
        return None

    def _gathers(
        self, group: Group, dense: int, routed: int, axis: ParallelAxis
    ) -> Iterator[CommOp]:
        for members, count in ((group, dense), (Group.DP_EP, routed)):
            if count:
                yield CommOp(
                    kind=CollectiveKind.ALL_GATHER,
                    group=members,
                    axis=axis,
                    size_bytes=_PARAMETER * count,
                )

    def _reductions(self, dense: int, routed: int) -> Iterator[CommOp]:
        """Reduce-scatters over the shards; ranks that hold the same shard sum it (HSDP)."""
        size = self.framework.sharded_gradient_bytes
        for members, count in ((Group.FSDP, dense), (Group.DP_EP, routed)):
            if count:
                yield CommOp(
                    kind=CollectiveKind.REDUCE_SCATTER,
                    group=members,
                    axis=ParallelAxis.DP,
                    size_bytes=size * count,
                )
        if self.shards < self.plan.cp * self.plan.dp:
            yield CommOp(
                kind=CollectiveKind.ALL_REDUCE,
                group=Group.DP_FSDP,
                axis=ParallelAxis.DP,
                size_bytes=size * dense // self.shards,
            )

    def per_parameter(self) -> Iterator[PerParameter]:
        """What a step ends with: gradients reduced, parameters updated and gathered."""
        replicas = self.plan.cp * self.plan.dp
        for experts, group, ranks in (
            (False, Group.DP_CP, replicas),
            (True, Group.DP_EP, self.expert_replicas),
        ):
            name = "expert_" if experts else ""
            yield PerParameter(
                name=f"{name}optimizer",
                phase=Phase.FORWARD,
                role=Role.UPDATE,
                experts=experts,
                compute_ps=self._update_ps(ranks),
            )
            if self.plan.zero >= 2:
                continue
            whole = self.plan.zero == 0
            yield PerParameter(
                name=f"{name}gradients",
                phase=Phase.WEIGHT_GRAD,
                role=Role.GRADIENTS,
                experts=experts,
                kind=CollectiveKind.ALL_REDUCE if whole else CollectiveKind.REDUCE_SCATTER,
                group=group,
                size_bytes=self.framework.gradient_bytes,
            )
            if not whole and not self.plan.dp_overlap:
                yield PerParameter(
                    name=f"{name}parameters",
                    phase=Phase.FORWARD,
                    role=Role.PARAMETERS,
                    experts=experts,
                    kind=CollectiveKind.ALL_GATHER,
                    group=group,
                    size_bytes=_PARAMETER,
                )

    def _update_ps(self, replicas: int) -> float:
        """Time of the optimizer's kernels per parameter that a rank computes with."""
        zero = self.plan.zero
        own = _OWNED_WHOLE if zero == 0 else _OWNED / (self.shards if zero >= 2 else replicas)
        moved = own + (0.0 if zero >= 2 else _EVERY)
        return moved / self.device.bytes_per_s * PS_PER_S
