"""What the names of files and folders of a run tell: degrees, sizes, and when it ran."""

import re
from pathlib import Path

_DEGREES = {
    "wd": "npus",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "exp": "ep",
    "expnum": "experts",
    "expn": "experts",
    "l": "layers",
    "nl": "layers",
    "hs": "hidden",
    "sl": "sequence",
}
_PART = re.compile(r"([A-Za-z]+)(\d{1,9})")
_DATE = re.compile(r"\d{10,20}")


def known_degrees(*names: str | Path) -> dict[str, int]:
    """Degrees written in file or folder names such as `pp4_tp1_exp2_expn8_dp4_nl8_hs4096_sl1024`.

    The last two parts of a path are read; of several names the first that tells a degree wins.
    """
    found: dict[str, int] = {}
    for name in names:
        for part in reversed(Path(name).absolute().parts[-2:]):
            for token in re.split(r"[_.]", part):
                match = _PART.fullmatch(token)
                if match and match[1].lower() in _DEGREES and int(match[2]):
                    found.setdefault(_DEGREES[match[1].lower()], int(match[2]))
    return found


def run_names(file: str) -> dict[str, str]:
    """What files of one run have in common in their names: degrees, and the time it was started."""
    names = {}
    for token in re.split(r"[_.]", file):
        match = _PART.fullmatch(token)
        if match and match[1].lower() in _DEGREES:
            names[match[1]] = match[2]
        elif _DATE.fullmatch(token):
            names["time"] = token
    return names
