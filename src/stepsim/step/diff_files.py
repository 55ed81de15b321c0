"""Differences of what `--json` wrote: of two files, or of the schedules in one of them.

A file of `stepsim compare` holds several results: those of two files are compared schedule by
schedule, those of one file with its first.
"""

from collections.abc import Mapping
from pathlib import Path

from stepsim.base.errors import StepsimError
from stepsim.base.structs import File, Names, Noun
from stepsim.explain.diff import ResultDiff, diff_profiles, diff_results
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.report import Report, ResultDocument
from stepsim.files.reading import read_document
from stepsim.step.compare import ComparisonDocument


class FileDiffs(Noun):
    """What is compared of two files, or of one; schedules that only one of them has are not."""

    diffs: tuple[ResultDiff, ...]
    only_a: Names = ()
    only_b: Names = ()


Recorded = ResultDocument | ComparisonDocument | ProfileDocument
_KINDS: Mapping[str, type[Recorded]] = {
    "slowdown_by_replica": ProfileDocument,
    "candidates": ComparisonDocument,
    "schema_version": ResultDocument,
}
_Results = dict[tuple[str, int], Report]


def diff_files(a: Path, b: Path | None) -> FileDiffs:
    """The differences of two files of `--json`, or of the schedules in one of `compare`.

    Two files are compared by schedules that both have, in the order of A; two single results are
    compared whatever their schedules. Of one file all schedules are compared with the first.
    Raises StepsimError for files that have nothing to compare.
    """
    first = load_recorded(a)
    if b is None:
        return FileDiffs(diffs=_diffs_inside(first, str(a)))
    second, place = load_recorded(b), f"{a}, {b}"
    if isinstance(first, ProfileDocument) and isinstance(second, ProfileDocument):
        return FileDiffs(diffs=(diff_profiles(first, second),))
    if isinstance(first, ProfileDocument) or isinstance(second, ProfileDocument):
        raise StepsimError(f"{place}: expected two results or two profiles, not one of each")
    if isinstance(first, ResultDocument) and isinstance(second, ResultDocument):
        return FileDiffs(diffs=(diff_results(first, second),))
    return _diffs_by_schedule(_by_schedule(first), _by_schedule(second), place)


def load_recorded(path: File) -> Recorded:
    """The result, the comparison or the profile in a JSON file.

    Raises StepsimError naming the file, the place in it, the value and what is allowed.
    """
    return read_document(Path(path), _KINDS, "a step, a comparison or a profile of --json")


def _diffs_inside(recorded: Recorded, place: str) -> tuple[ResultDiff, ...]:
    """How all schedules of a comparison differ from the first that ran."""
    if not isinstance(recorded, ComparisonDocument):
        raise StepsimError(f"{place}: one result: expected a second file to compare it with")
    first, *others = recorded.runs
    if not others:
        raise StepsimError(f"{place}: only {first.schedule} ran: expected two schedules or files")
    return tuple(diff_results(first, other) for other in others)


def _diffs_by_schedule(of_a: _Results, of_b: _Results, place: str) -> FileDiffs:
    """How the n-th result of every schedule in A differs from the n-th of the same in B."""
    both = [key for key in of_a if key in of_b]
    if not both:
        one, other = (", ".join(name for name, _ in of) for of in (of_a, of_b))
        raise StepsimError(f"{place}: schedules {one} and {other}: expected one that both have")
    return FileDiffs(
        diffs=tuple(diff_results(of_a[key], of_b[key]) for key in both),
        only_a=tuple(key[0] for key in of_a if key not in of_b),
        only_b=tuple(key[0] for key in of_b if key not in of_a),
    )


def _by_schedule(recorded: ResultDocument | ComparisonDocument) -> _Results:
    """Results of a file by their schedule, and how many of the same schedule stand before them."""
    keyed: _Results = {}
    for result in (recorded,) if isinstance(recorded, ResultDocument) else recorded.runs:
        before = sum(name == result.schedule for name, _ in keyed)
        keyed[result.schedule, before] = result
    return keyed
