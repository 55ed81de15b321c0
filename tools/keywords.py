"""Write what type checkers and editors know of the options: a dictionary with a type of each."""

from stepsim.base.option import Option
from stepsim.base.units import Quantity
from stepsim.options import ALIASES, OPTIONS

_LONGEST = 100
_BEGINNING = '''"""The options of a step as keyword arguments, for editors and type checkers.

Written by tools/reference.py from `stepsim.options`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepsim.measured.calibration.calibration import Calibration
    from stepsim.network.measured_times import CommTable
    from stepsim.parallel.schedules import Schedule
    from stepsim.workload.model.calibration import ModelCalibration
    from stepsim.workload.model.device import Device
    from stepsim.workload.model.framework import Framework
    from stepsim.workload.scaling import ComputeScale, SlowRanks


class SharedKeywords(TypedDict, total=False):
    """The options that all plans of a search share: texts with units, else bytes and seconds."""

'''
_OWN = '''

class StepKeywords(SharedKeywords, total=False):
    """Every option of a step, as people type it; `stepsim.simulate` says what each is."""

'''
_SIZE = ("gpus",)
"""What a search of plans takes as an argument of its own."""

_QUANTITIES = {
    Quantity.BANDWIDTH: "str | float",
    Quantity.TIME: "str | float",
    Quantity.SIZE: "str | int",
    Quantity.FACTOR: "str | float",
    Quantity.COUNT: "str | int",
    Quantity.SWITCH: "str | bool",
    Quantity.NAME: "str",
}
_FILES = {
    "device": "str | Path | Device",
    "framework": "str | Path | Framework",
    "schedule": "str | Path | Schedule",
    "calibration": "str | Path | Calibration | ModelCalibration",
    "comm_table": "str | Path | Sequence[str | Path] | CommTable",
    "expert_load": "str | Path | Sequence[float]",
    "algorithm": "str | Sequence[str]",
    "slow": "str | SlowRanks",
    "compute_scale": "str | float | ComputeScale",
}
"""Types of the options that a quantity alone does not say."""


def keywords_module() -> bytes:
    """The module `stepsim.face.keywords`: a line for every option and every other name of one."""
    names = {**{name: name for name in OPTIONS}, **ALIASES}
    lines = {
        name: _marked(f'    {name}: "{_type(OPTIONS[of])} | None"\n')
        for name, of in sorted(names.items())
    }
    own = "".join(lines.pop(name) for name in _SIZE)
    return "".join((_BEGINNING, *lines.values(), _OWN, own)).encode()


def _type(option: Option) -> str:
    if option.name in _FILES:
        return _FILES[option.name]
    if option.offers and not option.read:
        return f"Literal[{', '.join(repr(str(each)) for each in option.names)}] | str"
    return _QUANTITIES[option.quantity]


def _marked(line: str) -> str:
    """A line as the formatter has it: in parentheses where that helps, marked if too long."""
    if len(line) <= _LONGEST + 1:
        return line
    name, _, kind = line.rstrip().partition(": ")
    inner = f"        {kind}"
    if len(inner) <= _LONGEST:
        return f"{name}: (\n{inner}\n    )\n"
    return f"{line.rstrip()}  # noqa: E501\n"
