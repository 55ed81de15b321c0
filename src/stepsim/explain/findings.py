"""What a step's input can hardly mean, and what it is worth in step time."""

from stepsim.base.documents import Entry

WEIGHTY = 0.02
"""The least share of the step time that is said first."""

_NEGLIGIBLE = 0.001
"""A smaller share of the step time is said only to those who want to know everything."""


class Finding(Entry, frozen=True, kw_only=True):
    """Something about the input, and by which share the step is longer without it.

    `worth` is (other - this) / this of the step times; None where nobody can know.
    """

    text: str
    worth: float | None = None

    @property
    def is_weighty(self) -> bool:
        """Whether it is one of those that are said first."""
        return self.worth is None or abs(self.worth) >= WEIGHTY

    @property
    def is_negligible(self) -> bool:
        """Whether it changes next to nothing."""
        return self.worth is not None and abs(self.worth) < _NEGLIGIBLE

    def __str__(self) -> str:
        return self.text


def by_weight(finding: Finding) -> float:
    """A key that sorts findings, the weightiest first, after them those of unknown worth."""
    return -abs(WEIGHTY if finding.worth is None else finding.worth)
