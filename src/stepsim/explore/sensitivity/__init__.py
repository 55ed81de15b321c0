"""What the step time gains from faster links, shorter latencies and faster compute."""

from stepsim.explore.sensitivity.analysis import Sensitivity, Slope, find_sensitivity

__all__ = ["Sensitivity", "Slope", "find_sensitivity"]
