"""Devices and training frameworks: TOML files, shipped ones by name."""

from pathlib import Path

from stepsim.base.errors import PlanError, errors_at
from stepsim.base.structs import File, replace
from stepsim.files.reading import (
    first_bytes,
    named_file,
    names_of_files,
    read_toml,
    shipped_names,
    shipped_once,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.layout import named_layout

# Formats that run at another's rates where a device has none of their own.
_LENT = {Precision.FP16: Precision.BF16, Precision.MXFP8: Precision.FP8}


def device_names() -> list[str]:
    """Names of the shipped devices."""
    return shipped_names("devices")


def framework_names() -> list[str]:
    """Names of the shipped frameworks."""
    return shipped_names("frameworks")


def accelerator_of(name_or_path: File) -> Device | Framework | None:
    """The device or the framework that something names or describes; None for anything else.

    Files are known by a key that only devices, or only frameworks, have. Raises PlanError.
    """
    path, name = Path(name_or_path), str(name_or_path).lower()
    lines = first_bytes(path, 65536).splitlines() if path.suffix == ".toml" else []
    if name in names_of_files("device") or any(b.startswith(b"memory_bandwidth") for b in lines):
        return read_device(name_or_path)
    keys = any(line.startswith(b"host_expert_layer") for line in lines)
    return read_framework(name_or_path) if keys or name in names_of_files("framework") else None


def read_device(name_or_path: File) -> Device:
    """A device by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_device(named_file("device", name_or_path, PlanError))


@shipped_once
def _read_device(path: Path) -> Device:
    device = read_toml(path, Device, PlanError, "device")
    lent = {
        own: device.rates[other]
        for own, other in _LENT.items()
        if other in device.rates and own in device.lends
    }
    return replace(device, rates=lent | dict(device.rates))


def read_framework(name_or_path: File) -> Framework:
    """A framework by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_framework(named_file("framework", name_or_path, PlanError))


@shipped_once
def _read_framework(path: Path) -> Framework:
    framework = read_toml(path, Framework, PlanError, "framework")
    for recipe in framework.recipes:
        with errors_at(path, PlanError):
            named_layout(recipe.layout or "equal")
    return framework
