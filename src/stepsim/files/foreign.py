"""Files of other programs that people bring, by their first bytes: what they are, what to give."""

import re
from pathlib import Path

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import shipped
from stepsim.files.reading import first_bytes

_BEGINNING = 1 << 14


def refuse_foreign(path: Path) -> None:
    """Raise WorkloadError for a file of another program, with what it is and what to give."""
    start = first_bytes(path, _BEGINNING)
    for each in shipped(__file__, "foreign.toml", dict[str, list[dict[str, str]]])["kind"]:
        if re.search(each["pattern"].encode(), start, re.DOTALL):
            raise WorkloadError(
                f"{path}: not a file that stepsim reads: this looks like {each['what']}: "
                f"{each['give']}"
            )
