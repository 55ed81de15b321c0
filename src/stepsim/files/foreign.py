"""Files of other programs that people bring, by their first bytes: what they are, what to give."""

import re
from pathlib import Path

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Noun, shipped
from stepsim.files.reading import first_bytes

_BEGINNING = 1 << 14


class _Foreign(Noun):
    """A kind of files: what their beginning matches, what they are, and what to give instead."""

    pattern: str
    what: str
    give: str


def refuse_foreign(path: Path) -> None:
    """Raise WorkloadError for a file of another program, with what it is and what to give."""
    start = first_bytes(path, _BEGINNING)
    for each in shipped(__file__, "foreign.toml", dict[str, list[_Foreign]])["kind"]:
        if re.search(each.pattern.encode(), start, re.DOTALL):
            raise WorkloadError(
                f"{path}: not a file that stepsim reads: this looks like {each.what}: {each.give}"
            )
