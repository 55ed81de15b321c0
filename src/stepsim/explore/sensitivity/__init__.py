"""What the step time gains from faster links, shorter latencies and faster compute."""

from stepsim.explore.sensitivity.analysis import Sensitivity, Slope, sensitivity

__all__ = ["Sensitivity", "Slope", "sensitivity"]
