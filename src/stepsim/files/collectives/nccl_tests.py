"""What the programs of nccl-tests print: `all_reduce_perf`, `all_gather_perf`, `alltoall_perf`, ...

A run begins with a line per rank (`#  Rank  0 Group  0 Pid 4711 on host device  0 [..] name`), then
names its columns, then has a line per size: bytes, elements, type, operation, root, and time (us),
algbw, busbw and wrong results, out of place and in place. Versions differ in the columns between
type and time, so the times are found from the right. The size is that of the full buffer for every
collective (`max(sendBytes, expectedBytes)` in common.cu). The time out of place is taken: every
collective can run so. Other lines, and what mpirun or srun put before a line, are not read.

The collective is told by `# Collective test starting: all_reduce_perf`, else by the last program
named before the run, else by the file's name.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from msgspec import Struct

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, bad_value
from stepsim.base.structs import Names
from stepsim.files.collectives.samples import CurveSample, collective_kind, curves_of
from stepsim.files.collectives.times_csv import Line, sample_of
from stepsim.network.measured_times import CommTable

_AGREEMENT = 0.06

_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\s*\d+: )?\s*")
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[[^\]]*\]\s*(.*)"
)
_HEADER = re.compile(r"#\s+size\s+count\s+type\s.*\b(?:cpu)?time\s+algbw\s+busbw\b.*")
_PROGRAM = re.compile(r"[a-z]+(?:_[a-z]+)*_perf$")
_LONGEST_PROGRAM = 40
_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*(?:\s.*)?")
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_NAMED = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "sendrecv")


class _Run(Struct, kw_only=True):
    """A run while it is read: host and device of each rank, then its columns and its collective."""

    program: str = ""
    hosts: dict[int, str] = {}
    device: str = ""
    columns: Names = ()
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE


def is_nccl_tests(text: str) -> bool:
    """Whether a text holds a line that only nccl-tests prints: a rank's, or the columns' names."""
    bare = map(_bare, text.splitlines())
    return any(_HEADER.fullmatch(line) or _RANK.fullmatch(line) for line in bare)


def parse_nccl_tests(text: str, *, source: str, kind: CollectiveKind | None = None) -> CommTable:
    """Curves of all runs in a text; `source` is the file's name, `kind` what a run does not say.

    Raises CalibrationError naming file and line: no rank lines, ranks that repeat or are missing,
    several groups, an unknown collective, lines cut off, times that contradict the bus bandwidth.
    Wrong results are warnings.
    """
    warnings: list[str] = []
    samples = list(_samples(text, source, kind, warnings))
    if not samples:
        raise CalibrationError(
            f"{source}: no measurement of nccl-tests: expected a line per rank, the "
            "columns and a line per size"
        )
    return CommTable(source=source, curves=curves_of(samples), warnings=tuple(warnings))


def _samples(
    text: str, source: str, kind: CollectiveKind | None, warnings: list[str]
) -> Iterator[CurveSample]:
    run = _Run()
    for number, line in enumerate(text.splitlines(), 1):
        place, bare = f"{source}:{number}", _bare(line)
        if rank := _RANK.fullmatch(bare):
            if run.columns:
                run = _Run(program=run.program)
            _add_rank(run, rank, place)
        elif _HEADER.fullmatch(bare):
            run.columns = _columns(run, bare, place)
            run.kind = _kind_of(run.program, source, kind, place)
            run.program = ""
        elif run.columns and _ROW.fullmatch(bare):
            yield _sample(run, bare, place, source, warnings)
        elif program := _program_in(bare):
            run.program = program


def _bare(line: str) -> str:
    """A line without what mpirun --tag-output or srun --label put before it."""
    return _PREFIX.sub("", line, count=1).rstrip()


def _program_in(line: str) -> str:
    """The last program of nccl-tests that a line names, empty if none."""
    end = line.rfind("_perf") + len("_perf")
    found = _PROGRAM.search(line[max(0, end - _LONGEST_PROGRAM) : end]) if "_perf" in line else None
    return found[0] if found else ""


def _add_rank(run: _Run, rank: re.Match[str], place: str) -> None:
    number, group, host, device = rank.groups()
    if int(group or 0):
        raise CalibrationError(
            f"{place}: group {group}: several groups ran at once: expected one (NCCL_TESTS_SPLIT)"
        )
    if int(number) in run.hosts:
        raise CalibrationError(
            f"{place}: rank {number} occurs twice: expected each once (nccl-tests built with MPI=1)"
        )
    run.hosts[int(number)] = host
    run.device = device.strip()


def _columns(run: _Run, header: str, place: str) -> Names:
    """Names of the columns, without the timestamp, of a run that has all of its ranks."""
    ranks = len(run.hosts)
    missing = next((rank for rank in range(ranks) if rank not in run.hosts), None)
    if not ranks or missing is not None:
        what = "no rank" if not ranks else f"no rank {missing}"
        raise CalibrationError(f"{place}: {what} before this line: expected '# Rank 0 ... on host'")
    names = tuple(name for name in header.split()[1:] if name != "timestamp")
    if "time" not in names:
        raise CalibrationError(f"{place}: times of the CPU (-C 1): expected those of the GPU")
    first = names.index("time")
    if names[first : first + 3] != ("time", "algbw", "busbw"):
        raise CalibrationError(bad_value(place, "columns", header, "time, then algbw and busbw"))
    return names


def _kind_of(program: str, source: str, kind: CollectiveKind | None, place: str) -> CollectiveKind:
    """The collective of a run."""
    if program:
        return collective_kind(program, place, "program")
    if kind:
        return kind
    plain = PurePath(source).name.casefold().replace("_", "").replace("-", "")
    named = [name for name in _NAMED if name in plain]
    if len(named) != 1:
        raise CalibrationError(
            f"{place}: no collective named before this line: expected a program such as "
            "all_reduce_perf, in the text or the file's name, or --kind"
        )
    return collective_kind(named[0], place, "file name")


def _sample(run: _Run, row: str, place: str, source: str, warnings: list[str]) -> CurveSample:
    """The measurement of a line, as that of a table."""
    fields = _TIMESTAMP.sub("", row).split()
    tail = len(run.columns) - run.columns.index("time")
    if not 3 <= len(fields) - tail <= len(run.columns) - tail:
        expected = f"{len(run.columns)}, as in the header"
        raise CalibrationError(bad_value(place, "fields", len(fields), expected))
    measured = dict(zip(run.columns[-tail:][:4], fields[-tail:][:4], strict=True))
    wrong = measured.get("#wrong", "0")
    if wrong not in ("0", "N/A"):
        warnings.append(f"{place}: {wrong} wrong results in this measurement")
    texts = {
        "machine": run.device,
        "kind": run.kind,
        "ranks": str(len(run.hosts)),
        "nodes": str(len(set(run.hosts.values()))),
        "size": fields[0],
        "time": measured["time"],
        "busbw": measured["busbw"],
    }
    names = dict(zip(texts, texts, strict=True)) | {"time": "time_us", "busbw": "busbw_GBs"}
    return sample_of(Line(place=place, texts=texts, names=names), source, _AGREEMENT)
