"""What compute loses beside communication in the closed form of a step: the law, over plans.

Compute counts as products of many blocks that leave as many SMs free as the framework's, and a
communication as beside it for as long as it is hidden: the closed form does not know which kernels
run when.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import numpy as np

from stepsim.base.arrays import Bools, Floats, distinct
from stepsim.base.structs import Noun
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.overlap import (
    ACROSS_NODES_SMS,
    CommDemand,
    CommEngine,
    Demands,
    GpuLimits,
    KernelDemand,
    row_slowdown,
    slowdown,
)

DISPATCH_ENGINES: Mapping[ExpertDispatch, CommEngine] = MappingProxyType(
    {
        ExpertDispatch.ALL_TO_ALL: CommEngine.POINT_TO_POINT,
        ExpertDispatch.DEEPEP: CommEngine.DEEPEP,
        ExpertDispatch.DEEPEP_FP8: CommEngine.DEEPEP,
        ExpertDispatch.HYBRIDEP: CommEngine.HYBRIDEP,
        ExpertDispatch.HYBRIDEP_FP8: CommEngine.HYBRIDEP,
    }
)
"""What carries tokens to their experts."""
_DISPATCHERS = tuple(ExpertDispatch)
_STEP = 1e9
"""Bytes per second to which rates are rounded: plans that hardly differ share one slowdown."""


def law_holds(device: Device) -> bool:
    """Whether the law is known of a device: its multiprocessors are counted, and not shared.

    A compute unit of CDNA runs blocks of several kernels at a time: there the law is worse than no
    slowdown.
    """
    return device.processors is not None and not device.generation.startswith("cdna")


class Slowing(Noun):
    """A GPU and the SMs that each communication holds: None as many as usual, 0 copy engines."""

    gpu: GpuLimits
    sms: int | None = None
    kernel: KernelDemand = KernelDemand()

    @classmethod
    def on(cls, device: Device, framework: Framework, sms: int | None) -> Self | None:
        """That of a framework's jobs on a device; None for one whose limits nobody knows."""
        if not device.processors:
            return None
        kernel = KernelDemand(free_sms=framework.free_sms)
        return cls(gpu=GpuLimits.of(device), sms=sms, kernel=kernel)

    def lost(
        self,
        engine: CommEngine,
        sent: Floats,
        seconds: Floats,
        far: Bools,
        kernels: tuple[Demands, float] | None = None,
    ) -> Floats:
        """Share of its speed that compute loses beside communications that send so many bytes.

        They take `seconds` and are `far` where they leave a node. `kernels` are those of a row,
        with the seconds that it takes alone; None: products of many blocks.
        """
        carrier = CommEngine.COPY_ENGINE if self.sms == 0 else engine
        traits = carrier.traits
        wire = np.divide(sent, seconds, out=np.zeros_like(seconds), where=seconds > 0)
        found = np.zeros_like(seconds)
        for is_far in (False, True):
            some = np.flatnonzero((far == is_far) & (seconds > 0))
            sms = self.sms
            if sms is None and is_far and engine in (CommEngine.RING, CommEngine.RING_IN_PLACE):
                sms = min(traits.sms, ACROSS_NODES_SMS)
            rates, number = np.unique(np.rint(wire[some] / _STEP) * _STEP, return_inverse=True)
            demands = [traits.moving(rate, sms) for rate in rates.tolist()]
            lost = [1.0 - 1.0 / self._factor(each, kernels) for each in demands]
            found[some] = np.array(lost)[number] if lost else 0.0
        return found

    def _factor(self, beside: CommDemand, kernels: tuple[Demands, float] | None) -> float:
        if kernels is None:
            return slowdown(self.kernel, [beside], self.gpu)
        return row_slowdown(*kernels, [beside], self.gpu)

    def lost_to_dispatch(
        self, dispatcher: Floats, sent: Floats, seconds: Floats, far: Bools
    ) -> Floats:
        """The same beside exchanges between experts, by the number of each plan's dispatcher."""
        found = np.zeros_like(seconds)
        for number in distinct(dispatcher).astype(int).tolist():
            engine = DISPATCH_ENGINES[_DISPATCHERS[number]]
            found = np.where(dispatcher == number, self.lost(engine, sent, seconds, far), found)
        return found
