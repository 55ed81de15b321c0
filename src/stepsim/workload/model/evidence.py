"""What the numbers of a device or a framework rest on, as their files say it."""

import re
from enum import StrEnum
from typing import NamedTuple


class Evidence(StrEnum):
    """What a number rests on, from a measurement of the very thing to a guess.

    `DERIVED` follows from other facts, such as the code of a program. `FITTED` was set on measured
    steps, `SHARED` is that of another device or framework. `UNSAID` has no source.
    """

    MEASURED = "measured kernel"
    DATA_SHEET = "data sheet"
    DERIVED = "derived"
    FITTED = "fitted on"
    SHARED = "shared"
    GUESS = "guess"
    UNSAID = "not said"


class Provenance(NamedTuple):
    """The evidence of a number, and its source in words."""

    evidence: Evidence
    text: str

    @property
    def brief(self) -> str:
        """The evidence, and the source as far as its first comma, semicolon or bracket."""
        return f"{self.evidence}: {re.split('[,;(]', self.text)[0].strip()}"


def source_of(text: str | None) -> Provenance:
    """The source that a text such as `fitted on: runs of nanotron` names.

    A text that begins with no kind of evidence is UNSAID, and stands as it is.
    """
    kind, colon, rest = (text or "").partition(":")
    if colon and kind in list(Evidence):
        return Provenance(Evidence(kind), rest.strip())
    return Provenance(Evidence.UNSAID, text or "")
