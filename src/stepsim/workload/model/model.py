"""A model to be trained: what a workload is made of once its plan and device are known."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stepsim.base.structs import Names, Noun

if TYPE_CHECKING:
    from stepsim.workload.model.architecture import Architecture


class Unread(Noun, kw_only=False):
    """A value that a description leaves open: asked for where nobody says another."""

    why: str


class Model(Noun):
    """An architecture, what its description asks of a step, and what was assumed while reading it.

    `asked` are options of a step by name, as people type them, e.g. those of a launch script; what
    that leaves to its environment is `Unread`.
    """

    source: str
    architecture: "Architecture"
    asked: Mapping[str, object] = {}
    warnings: Names = ()

    @property
    def said(self) -> Names:
        """All that a user should know of it."""
        return self.warnings
