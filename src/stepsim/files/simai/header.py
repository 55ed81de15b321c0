"""Line 1 of a workload text: a policy, then keys in any order, with or without colons."""

from enum import StrEnum

from msgspec import Struct

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.units import MAX_INT64, plain_number

_KEYS = {
    "model_parallel_npu_group": "tp",
    "expert_parallel_npu_group": "ep",
    "ep": "ep",
    "pp": "pp",
    "vpp": "vpp",
    "ga": "ga",
    "all_gpus": "npus",
    "pp_comm": "pp_comm_bytes",
    "dlrm_last_bottom_layer": "last_bottom_layer",
    "mode": "mode",
}
_SIMAI = frozenset({"ep", "pp", "vpp", "ga", "npus", "pp_comm_bytes", "mode"})
_LISTS = ("checkpoints", "checkpoint_initiates")
_MAX_DEGREE = 1 << 24


class Policy(StrEnum):
    """Parallelism policy of a file: which group each phase communicates in."""

    DATA = "DATA"
    MODEL = "MODEL"
    HYBRID_DATA_MODEL = "HYBRID_DATA_MODEL"
    HYBRID_MODEL_DATA = "HYBRID_MODEL_DATA"
    HYBRID_TRANSFORMER = "HYBRID_TRANSFORMER"
    HYBRID_TRANSFORMER_FWD_IN_BCKWD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
    HYBRID_DLRM = "HYBRID_DLRM"
    HYBRID_DLRM_ENHANCED = "HYBRID_DLRM_ENHANCED"
    HYBRID_CUSTOMIZED = "HYBRID_CUSTOMIZED"
    MICRO = "MICRO"
    DISTRIBUTED_INFERENCE = "DISTRIBUTED_INFERENCE"


class Header(Struct, frozen=True, kw_only=True):
    """What the first line says. A missing key is None where 1 would not mean the same.

    `checkpoints` and `checkpoint_initiates` count rows from 0. `is_simai`: it has keys that
    ASTRA-sim 1.0 does not know.
    """

    policy: Policy
    tp: int = 1
    ep: int = 1
    pp: int = 1
    vpp: int = 1
    ga: int | None = None
    npus: int | None = None
    pp_comm_bytes: int | None = None
    last_bottom_layer: int | None = None
    checkpoints: tuple[int, ...] = ()
    checkpoint_initiates: tuple[int, ...] = ()
    is_simai: bool = False
    warnings: tuple[str, ...] = ()


def parse_header(place: str, line: str) -> Header:
    """Parse a header line; `place` is `FILE:LINE` for messages.

    Missing or zero degrees mean 1, a missing or zero pp_comm means that none is known.
    """
    words = line.split()
    policy = _policy(place, words[0])
    values, lists, unknown = _collect(place, policy, words[1:])
    degrees = {key: values[key] or 1 for key in ("tp", "ep", "pp", "vpp") if key in values}
    return Header(
        policy=policy,
        **degrees,
        ga=values.get("ga") or None,
        npus=values.get("npus") or None,
        pp_comm_bytes=values.get("pp_comm_bytes") or None,
        last_bottom_layer=values.get("last_bottom_layer"),
        checkpoints=tuple(lists["checkpoints"]),
        checkpoint_initiates=tuple(lists["checkpoint_initiates"]),
        is_simai=not _SIMAI.isdisjoint(values),
        warnings=(f"header: unknown keys ignored: {' '.join(unknown)}",) if unknown else (),
    )


def _policy(place: str, word: str) -> Policy:
    try:
        return Policy(word.rstrip(":").upper())
    except ValueError:
        expected = f"one of {', '.join(Policy)}"
        raise WorkloadError(bad_value(place, "policy", word, expected)) from None


def _collect(
    place: str, policy: Policy, words: list[str]
) -> tuple[dict[str, int], dict[str, list[int]], list[str]]:
    """Values per key, id lists, and the words that mean nothing to stepsim."""
    values: dict[str, int] = {}
    lists: dict[str, list[int]] = {name: [] for name in _LISTS}
    unknown: list[str] = []
    if (
        words
        and words[0].isdecimal()
        and policy in (Policy.HYBRID_DLRM, Policy.HYBRID_DLRM_ENHANCED)
    ):
        words = ["dlrm_last_bottom_layer", *words]
    queue = iter(words)
    for word in queue:
        key = word.rstrip(":").lower()
        if key in _LISTS:
            count = _integer(place, key, next(queue, None))
            lists[key] = [_integer(place, f"{key} id", next(queue, None)) for _ in range(count)]
        elif key in _KEYS and _KEYS[key] in values:
            raise WorkloadError(f"{place}: {key} is given twice: expected once")
        elif key in _KEYS:
            values[_KEYS[key]] = _integer(place, key, next(queue, None))
        else:
            unknown.append(word)
    return values, lists, unknown


def _integer(place: str, key: str, text: str | None) -> int:
    """Non-negative integer; `4194304.0` counts. Degrees and ids are at most 2**24."""
    limit = MAX_INT64 if key == "pp_comm" else _MAX_DEGREE
    expected = f"an integer from 0 to {limit}"
    if text is None:
        raise WorkloadError(f"{place}: {key} has no value: expected {expected}")
    try:
        value = plain_number(text)
    except ValueError:
        raise WorkloadError(bad_value(place, key, text, expected)) from None
    if not (0 <= value <= limit and value == int(value)):
        raise WorkloadError(bad_value(place, key, text, expected))
    return int(value)
