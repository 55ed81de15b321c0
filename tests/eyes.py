"""What eyes see of colours: CIELAB coordinates, with each colour blindness and without."""

from typing import Any

import numpy as np

# Machado, Oliveira, Fernandes (2009), severity 1: what each colour blindness makes of linear sRGB
BLIND = {
    "none": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175]]
XYZ += [[0.0193339, 0.1191920, 0.9503041]]


def lab(colour: str, blindness: str) -> Any:
    """CIELAB coordinates of #rrggbb as somebody with a colour blindness sees it."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLIND[blindness]) @ linear, 0, 1)
    x, y, z = np.cbrt(np.array(XYZ) @ seen / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
