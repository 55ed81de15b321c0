"""A timer of kernels that needs no device: every time is what a device's constants say."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from stepsim.measured.device.kernels import (
    AttentionCall,
    DeviceFacts,
    KernelTimes,
    LayerCall,
    LayerPasses,
    MovingCall,
    MovingKind,
    ProductCall,
)
from stepsim.measured.device.predicted import predicted_s
from stepsim.measured.kernels_beside import SyntheticLoad
from stepsim.workload.model.device import Device
from stepsim.workload.overlap import CommDemand, GpuLimits, KernelDemand, KernelKind, beside_s


def _kernel(name: str, at: float, took: float, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": took, "args": arguments}


class FormulaTimer:
    """Times of `device`; a product without a pause takes `slower` times as long."""

    def __init__(self, device: Device, slower: float = 1.25) -> None:
        self._device = device
        self._slower = slower

    @property
    def facts(self) -> DeviceFacts:
        """A device that calls itself `Formula GPU`."""
        return DeviceFacts(
            name="Formula GPU",
            memory_bytes=self._device.memory_bytes,
            reserved_bytes=2 << 30,
            versions=("torch 2.0", "CUDA 12"),
        )

    def product(self, call: ProductCall) -> KernelTimes:
        """The product's formula, three times with 1 % between."""
        return self._of(call)

    def attention(self, call: AttentionCall) -> KernelTimes:
        """Attention's formula."""
        return self._of(call)

    def moving(self, call: MovingCall) -> KernelTimes:
        """The copy as fast as the memory; others, in plain torch, take twice as long."""
        return self._of(call, 1.0 if call.kind is MovingKind.COPY else 2.0)

    def smallest(self) -> KernelTimes:
        """The kernel floor."""
        return KernelTimes(seconds=(self._device.kernel_floor_ps / 1e12,))

    def launch(self) -> KernelTimes | None:
        """5 us."""
        return KernelTimes(seconds=(5e-6,))

    def sustained(self, call: ProductCall, seconds: float) -> KernelTimes:
        """The product's formula, slower."""
        assert seconds > 0
        return self._of(call, self._slower)

    def overlap(
        self,
        calls: Sequence[ProductCall | AttentionCall | MovingCall],
        loads: Sequence[SyntheticLoad],
        trace: Path,
    ) -> None:
        """Three rounds of all kernels alone and beside each load, by the law of overlap."""
        gpu, events, now = GpuLimits.of(self._device), [], 0.0
        for load in (None, *loads):
            begin = now
            held = [CommDemand(sms=load.blocks, bytes_per_s=load.bytes_per_s)] if load else []
            for _, (place, call) in product(range(3), enumerate(calls)):
                kind = KernelKind.STREAM if isinstance(call, MovingCall) else KernelKind.PRODUCT
                own = KernelDemand.launched(kind, 5000 + place, 256, gpu, registers=64)
                took = 1e6 * beside_s(predicted_s(call, self._device), own, held, gpu)
                launched: dict[str, Any] = {"grid": [own.blocks, 1, 1], "block": [256, 1, 1]}
                launched |= {"registers per thread": 64, "stream": 7}
                name = f"{'gemm' if kind is KernelKind.PRODUCT else 'elementwise'} {place}"
                events.append(_kernel(name, now, took, launched))
                now += took + 1.0
            if load:
                arguments = {"grid": [load.blocks, 1, 1], "block": [512, 1, 1], "stream": 20}
                events.append(_kernel(load.name, begin, now - begin, arguments))
            now += 10.0
        gpus = [{"name": "NVIDIA H100 80GB HBM3"}]
        trace.write_text(json.dumps({"deviceProperties": gpus, "traceEvents": events}))

    def layer(self, call: LayerCall, trace: Path | None) -> LayerPasses:
        """1 ms, 2 ms, and 3 ms to launch."""
        if trace:
            trace.write_text("{}")
        forward, backward, host = (KernelTimes(seconds=(ms * 1e-3,)) for ms in (1, 2, 3))
        return LayerPasses(
            forward=forward, backward=backward, host=host, kept_bytes=1 << 30, peak_bytes=2 << 30
        )

    def _of(
        self, call: ProductCall | AttentionCall | MovingCall, factor: float = 1.0
    ) -> KernelTimes:
        middle = factor * predicted_s(call, self._device)
        return KernelTimes(seconds=(0.99 * middle, middle, 1.01 * middle))
