"""Devices and training frameworks: TOML files, shipped ones by name."""

import os
from os.path import isfile
from pathlib import Path

from stepsim.base.errors import PlanError, errors_at
from stepsim.base.process import remembered
from stepsim.base.structs import replace
from stepsim.files.reading import (
    first_bytes,
    question,
    read_toml,
    shipped_folder,
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


def accelerator_of(name_or_path: str | Path) -> Device | Framework | None:
    """The device or the framework that something names or describes; None for anything else.

    Files are known by a key that only devices, or only frameworks, have. Raises PlanError.
    """
    path, name = Path(name_or_path), str(name_or_path).lower()
    lines = first_bytes(path, 65536).splitlines() if path.suffix == ".toml" else []
    if name in names_of_files("device") or any(b.startswith(b"memory_bandwidth") for b in lines):
        return read_device(name_or_path)
    keys = any(line.startswith(b"host_expert_layer") for line in lines)
    return read_framework(name_or_path) if keys or name in names_of_files("framework") else None


def read_device(name_or_path: str | Path) -> Device:
    """A device by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_device(_file(name_or_path, "device"))


@shipped_once
def _read_device(path: Path) -> Device:
    device = read_toml(path, Device, PlanError, "device")
    lent = {
        own: device.rates[other]
        for own, other in _LENT.items()
        if other in device.rates and own in device.lends
    }
    return replace(device, rates=lent | dict(device.rates))


def read_framework(name_or_path: str | Path) -> Framework:
    """A framework by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_framework(_file(name_or_path, "framework"))


@shipped_once
def _read_framework(path: Path) -> Framework:
    framework = read_toml(path, Framework, PlanError, "framework")
    for recipe in framework.recipes:
        with errors_at(path, PlanError):
            named_layout(recipe.layout or "equal")
    return framework


def _file(name_or_path: str | Path, kind: str) -> Path:
    """File of a shipped name, in any case and by any of its names, or the user's own path.

    What files hold is read where the name is that of none of them: most people type that name.
    """
    path, typed = Path(name_or_path), str(name_or_path)
    name = typed.lower()
    called = shipped_folder(f"{kind}s") / f"{name}.toml"
    if path.name == typed and isfile(called):
        return called
    names = names_of_files(kind)
    if name in names:
        return names[name]
    if path.suffix == ".toml" or os.sep in typed or isfile(path):
        return path
    known = ", ".join(shipped_names(f"{kind}s"))
    raise PlanError(
        f"no {kind} named {typed!r}{question(name, names)}: expected a file or one of {known}"
    )


# validate of 955 published steps takes 4.2 s so, and 35.0 s without
@remembered
def names_of_files(kind: str) -> dict[str, Path]:
    """Files of a kind by each of their names."""
    schema: type[Device] | type[Framework] = Device if kind == "device" else Framework
    found = {}
    for path in sorted(shipped_folder(f"{kind}s").glob("*.toml")):
        file = read_toml(path, schema, PlanError, kind)
        for name in (path.stem, file.name, *file.also):
            found[name.lower()] = path
    return found
