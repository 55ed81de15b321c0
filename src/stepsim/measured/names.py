"""What the names of files and folders of a run tell: degrees, sizes, and when it ran."""

import re
from datetime import UTC, datetime
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
_TIME = "time"
_STARTED_TOGETHER_S = 60
"""Ranks of one run write their files as they start, within about a minute."""


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
            names[_TIME] = token
    return names


def differing(one: dict[str, str], other: dict[str, str]) -> str | None:
    """The first name that tells two files to be of different runs, None where none does."""
    for key in (key for key in one if key in other):
        together = key == _TIME and _apart_s(one[key], other[key]) <= _STARTED_TOGETHER_S
        if one[key] != other[key] and not together:
            return key
    return None


def _apart_s(one: str, other: str) -> float:
    """Seconds between two times, infinite where either cannot be read."""
    first, second = _seconds(one), _seconds(other)
    return abs(first - second) if first and second else float("inf")


def _seconds(token: str) -> float | None:
    """Seconds of 20250818085710, or of seconds or milliseconds since 1970."""
    if len(token) in (10, 13):
        return int(token) / (1 if len(token) == 10 else 1000)
    try:
        return datetime.strptime(token[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
