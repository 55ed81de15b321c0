"""Reading a result that `stepsim simulate --json` wrote, see `stepsim.files.result_json`.

Only what a comparison needs is read. Keys, parts and degrees that a later stepsim adds are
tolerated: unknown keys are ignored, unknown parts and degrees are kept by name.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from stepsim.base.errors import StepsimError, bad_value
from stepsim.base.units import MAX_INT64
from stepsim.files.reading import read_bytes
from stepsim.results.report import SCHEMA_VERSION
from stepsim.workload.axes import ParallelAxis, Part

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
Bandwidth = Annotated[float, msgspec.Meta(gt=0)]

Document = TypeVar("Document")

_MESSAGE = re.compile(r"Expected (?P<allowed>.+?)(?:, got .+?)?(?: - at `\$(?P<at>.*)`)?")
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`(?: - at `\$(?P<at>.*)`)?")


class IdleEntry(msgspec.Struct, frozen=True):
    """Idle time in the pipeline, in ps: before the first action, between, after the last."""

    head: Count
    inner: Count
    tail: Count
    busy: Count


class StageEntry(msgspec.Struct, frozen=True):
    """A stage: mean parts of its ranks and mean durations of its actions, in ps."""

    stage: Count
    breakdown_ps: dict[str, Count]
    first_rank: Count = 0
    last_rank: Count = 0
    forward_ps: Count = 0
    backward_ps: Count = 0
    idle_ps: IdleEntry | None = None


class RankEntry(msgspec.Struct, frozen=True):
    """A rank; `like` is the lowest one that behaves the same."""

    rank: Count
    stage: Count
    like: Count
    breakdown_ps: dict[str, Count]


class UserEntry(msgspec.Struct, frozen=True):
    """Communications that put `bytes` on a link."""

    group: str
    kind: str
    bytes: Count


class LinkEntry(msgspec.Struct, frozen=True):
    """A class of links; its bandwidth is None when it is free, `busy_ps` its busiest link's."""

    name: str
    bandwidth_bytes_per_s: Bandwidth | None
    total_bytes: Count
    busy_ps: Count
    links: Count = 0
    used: Count = 0
    busiest: str = ""
    busiest_bytes: Count = 0
    utilisation: float = 0.0
    users: tuple[UserEntry, ...] = ()


class CommEntry(msgspec.Struct, frozen=True):
    """Communications of one kind and size; `time_ps` is that of one alone."""

    group: str
    kind: str
    ranks: Count
    size_bytes: Count
    count: Count
    algorithms: tuple[str, ...]
    time_ps: Count


class ResultDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A result: parts of the step by name, in ps; every breakdown sums to `step_time_ps`.

    What has a default is what a comparison of two results does without.
    """

    schema_version: int
    workload: str
    topology: str
    schedule: str
    p2p: str
    npus: Count
    microbatches: Count
    plan: dict[str, Count]
    step_time_ps: Count
    breakdown_ps: dict[str, Count]
    stages: tuple[StageEntry, ...]
    links: tuple[LinkEntry, ...]
    contention: str = "none"
    pipeline_time_ps: Count = 0
    bubble_fraction: float = 0.0
    zero_bubble_rate: float = 0.0
    peak_activations: Count = 0
    peak_activation_bytes: Count | None = None
    critical_path_ps: dict[str, Count] = {}
    ranks: tuple[RankEntry, ...] = ()
    comms: tuple[CommEntry, ...] = ()
    warnings: tuple[str, ...] = ()
    settings: dict[str, str] = {}


def read_result(path: str | Path) -> ResultDocument:
    """The result in a JSON file.

    Raises StepsimError naming the file, the place in it, the value and what is allowed.
    """
    raw = read_plain(path, "a result of 'stepsim simulate --json'")
    document = convert(path, raw, ResultDocument)
    check_result(path, document)
    return document


def read_plain(path: str | Path, what: str) -> dict[str, Any]:
    """Plain data of a JSON file that should be `what`; raises StepsimError if it is none."""
    raw = _decode(Path(path))
    if not isinstance(raw, dict) or "schema_version" not in raw:
        raise StepsimError(f"{path}: not {what}: no schema_version")
    version = raw["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        allowed = f"{SCHEMA_VERSION}, the only one this stepsim reads"
        raise StepsimError(bad_value(str(path), "schema_version", version, allowed))
    return raw


def convert(path: str | Path, raw: dict[str, Any], kind: type[Document]) -> Document:
    """Plain data as a document; raises StepsimError naming file, place, value and allowed."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise StepsimError(_explain(path, raw, str(error))) from None


def _decode(path: Path) -> Any:
    """Plain data of a JSON file."""
    try:
        return msgspec.json.decode(read_bytes(path))
    except OSError as error:
        raise StepsimError(f"{path}: cannot read the result: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StepsimError(f"{path}: not a text file: expected a result in JSON") from None
    except RecursionError:
        raise StepsimError(f"{path}: not a result: its JSON is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise StepsimError(f"{path}: not valid JSON: {error}") from None


def _explain(path: str | Path, raw: Any, message: str) -> str:
    """What msgspec says, with the file and the value it stumbled over."""
    if missing := _MISSING.fullmatch(message):
        place = (missing["at"] or "").lstrip(".")
        return _missing(path, place, missing["key"])
    wrong = _MESSAGE.fullmatch(message)
    if wrong is None:
        return f"{path}: {message}"
    place, value = _look_up(raw, wrong["at"] or "")
    return bad_value(str(path), place, value, wrong["allowed"].replace("`", ""))


def _missing(path: str | Path, place: str, key: str) -> str:
    inside = f"{place}: " if place else ""
    return f"{path}: {inside}key {key!r} is missing: expected in every result of schema_version 1"


def _look_up(raw: Any, at: str) -> tuple[str, Any]:
    """Place and value of a path such as `.stages[0].breakdown_ps[...]`.

    The dots stand for the value of some key: it is the first that is no count.
    """
    place, value = "", raw
    for key, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at):
        if index.isdecimal():
            place, value = f"{place}[{index}]", value[int(index)]
            continue
        name = key or next(k for k, each in value.items() if not _is_count(each))
        place, value = f"{place}.{name}", value[name]
    return place.lstrip("."), value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT64


def check_result(path: str | Path, document: ResultDocument) -> None:
    """Raise StepsimError unless the parts add up, and stages and links have places of their own."""
    step = document.step_time_ps
    _need(path, "plan", document.plan, map(str, ParallelAxis))
    _check_parts(path, "breakdown_ps", document.breakdown_ps, step)
    for i, stage in enumerate(document.stages):
        place = f"stages[{i}]"
        if stage.stage != i:
            allowed = f"{i}: stages are numbered from 0 in order"
            raise StepsimError(bad_value(str(path), f"{place}.stage", stage.stage, allowed))
        _check_parts(path, f"{place}.breakdown_ps", stage.breakdown_ps, step)
    seen: set[str] = set()
    for i, link in enumerate(document.links):
        if link.name in seen:
            allowed = "a name of its own"
            raise StepsimError(bad_value(str(path), f"links[{i}].name", link.name, allowed))
        seen.add(link.name)


def _check_parts(path: str | Path, place: str, parts: Mapping[str, int], step_ps: int) -> None:
    _need(path, place, parts, (part.key for part in Part))
    total = sum(parts.values())
    if total != step_ps:
        allowed = f"step_time_ps, which is {step_ps}: the file is inconsistent"
        raise StepsimError(bad_value(str(path), f"sum of {place}", total, allowed))


def _need(path: str | Path, place: str, found: Mapping[str, int], names: Iterable[str]) -> None:
    for name in names:
        if name not in found:
            raise StepsimError(_missing(path, place, name))
