"""What measured steps and kernels say of a machine: factors, host times, rates, overlap.

A factor multiplies a prediction's compute; it belongs to a device, a framework and a precision.
What communications take of a GPU belongs to a device.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.workload.model.device import Device, MatrixRate
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.plan import Precision
from stepsim.workload.overlap import CommEngine, CommTraits


class MachineFactor(Struct, frozen=True, kw_only=True):
    """Measured over predicted of `runs` steps; `spread` is the largest residual, a share.

    `host_layer_ps` is the host time per layer, None where the steps do not tell it.
    """

    device: str
    framework: str
    precision: Precision
    factor: float
    runs: int
    spread: float
    host_layer_ps: int | None = None


class MeasuredRate(Struct, frozen=True, kw_only=True):
    """Rate and start of matrix products on a device; `spread` is the mean residual, a share."""

    device: str
    precision: Precision
    rate: MatrixRate
    shapes: int
    spread: float


class MeasuredTraits(Struct, frozen=True, kw_only=True):
    """What communications of an engine took of a device, from `rows` kernels beside them.

    `error` is the mean of |predicted / measured - 1| of those kernels, a share.
    """

    device: str
    engine: CommEngine
    traits: CommTraits
    rows: int
    error: float


class ModelCalibration(Struct, frozen=True, kw_only=True):
    """Everything that measurements said; `notes` are what they could not say, `path` its file."""

    factors: tuple[MachineFactor, ...] = ()
    rates: tuple[MeasuredRate, ...] = ()
    overlap: tuple[MeasuredTraits, ...] = ()
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    path: str = ""

    def factor_of(
        self, device: Device, framework: Framework, precision: Precision
    ) -> MachineFactor | None:
        """The factor of a machine, None where nothing was measured on it."""
        key = (device.name, framework.name, precision)
        for each in self.factors:
            if (each.device, each.framework, each.precision) == key:
                return each
        return None

    def traits_of(self, device: Device) -> Mapping[CommEngine, CommTraits]:
        """What communications take of a device by what carries them out, where it was measured."""
        return {each.engine: each.traits for each in self.overlap if each.device == device.name}

    def apply(
        self, device: Device, framework: Framework, precision: Precision
    ) -> tuple[Device, Framework]:
        """Device and framework as calibrated in one precision; as they are where unknown."""
        measured = {each.precision: each.rate for each in self.rates if each.device == device.name}
        device = replace(device, rates=MappingProxyType({**device.rates, **measured}))
        found = self.factor_of(device, framework, precision)
        if found is None:
            return device, framework
        if found.host_layer_ps is not None:
            framework = replace(framework, host_layer_ps=found.host_layer_ps)
        return slowed(device, found.factor), framework


def slowed(device: Device, factor: float) -> Device:
    """The device with everything that computes `factor` times as slow."""
    attention = {
        name: replace(rate, rate=rate.rate / factor) for name, rate in device.attention.items()
    }
    scans = {
        name: replace(
            rate, step_ps=round(rate.step_ps * factor), start_ps=round(rate.start_ps * factor)
        )
        for name, rate in device.scans.items()
    }
    return replace(
        device,
        sustained=device.sustained / factor,
        group_start_ps=round(device.group_start_ps * factor),
        scans=MappingProxyType(scans),
        vector_rate=device.vector_rate / factor,
        memory_bandwidth=device.memory_bandwidth / factor,
        kernel_floor_ps=round(device.kernel_floor_ps * factor),
        attention=MappingProxyType(attention),
    )
