"""Parameters in words."""

from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.explore.sensitivity.analysis import Slope

_WORDS = {
    "compute": "compute, all phases",
    "compute_scale.forward": "forward compute",
    "compute_scale.input_grad": "input-gradient compute",
    "compute_scale.weight_grad": "weight-gradient compute",
    "launch_latency": "launch latency of collectives",
    "get_batch": "get_batch time",
}


def describe(slope: Slope) -> str:
    """What is changed, e.g. `1 % more fabric bandwidth`."""
    link, _, field = slope.name.rpartition(".")
    named = _WORDS.get(slope.name) or f"{link} {field.replace('_', ' ')}".strip()
    return f"1 % {'more' if slope.faster_is_more else 'less'} {named}"


def show_value(slope: Slope) -> str:
    """The value with its unit."""
    if slope.faster_is_more:
        return format_bandwidth(slope.value)
    return f"x{slope.value:g}" if slope.name.startswith("compute") else format_time_ps(slope.value)
