"""The two sizes of the benchmarks.

`--small` runs everything once and on little, so that CI can see that it works; without it the
numbers are those of the docs.
"""

import sys
from typing import TypeVar

Size = TypeVar("Size")


def sized(full: Size, small: Size) -> Size:
    """What a benchmark takes: `small` where the command line says `--small`."""
    return small if "--small" in sys.argv else full


def arguments() -> list[str]:
    """What the command line names beside `--small`."""
    return [each for each in sys.argv[1:] if each != "--small"]
