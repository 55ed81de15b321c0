"""Types of values in files, with what a JSON Schema says of them; a reader sees text or numbers."""

from math import inf, isfinite
from typing import Annotated

from msgspec import Meta

from stepsim.base.units import BANDWIDTH_PATTERN, MAX_INT64, SIZE_PATTERN, TIME_PATTERN

Time = Annotated[
    str,
    Meta(
        description="a time with its unit",
        examples=["500 ns", "1.5 us"],
        extra_json_schema={"pattern": TIME_PATTERN},
    ),
]
Size = Annotated[
    str,
    Meta(
        description="a size with its unit: MB is 1e6 bytes, MiB is 2**20",
        examples=["160 MB", "64 MiB"],
        extra_json_schema={"pattern": SIZE_PATTERN},
    ),
]
Bandwidth = Annotated[
    str,
    Meta(
        description="a bandwidth with its unit, one way: GB/s is 1e9 bytes/s, Gbps 1e9 bit/s",
        examples=["400 Gbps", "50 GB/s", "inf"],
        extra_json_schema={"pattern": BANDWIDTH_PATTERN},
    ),
]

Count = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Picoseconds = Annotated[int, Meta(ge=0, le=MAX_INT64, description="picoseconds")]
Seconds = Annotated[float, Meta(description="seconds")]
Bytes = Annotated[int, Meta(ge=0, le=MAX_INT64, description="bytes")]
BytesPerSecond = Annotated[float, Meta(description="bytes/s, one way")]
Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]
"""What multiplies or divides: so far from 0 and from infinite that results are neither."""

Share = Annotated[float, Meta(description="a share: 0.1 is 10 %")]


def shown(name: str) -> Meta:
    """Marks a number of a document that is shown among the first, under a name."""
    return Meta(extra={"shown": name})


def finite(value: float) -> float | None:
    """A number as documents hold it: None without bound, such as the bandwidth of a free link."""
    return value if isfinite(value) else None


def unbounded(value: float | None) -> float:
    """A number that a document holds, as one to count with: infinite where it is None."""
    return inf if value is None else value
