"""Steps drawn of every scenario of a study."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Entry, Noun
from stepsim.explore.batch.samples import StepSamples
from stepsim.explore.sweep.study import Study
from stepsim.files.axes import Grid

Sampled = TypeVar("Sampled", bound=StepSamples)
_Entry = TypeVar("_Entry", bound=Entry)


class SampledSweep(Noun, Generic[Sampled]):
    """Steps drawn of every scenario of a grid, or the reasons of failures, in their order."""

    study: Study
    steps: int
    seed: int
    scenarios: tuple[Sampled | str, ...]

    @property
    def grid(self) -> Grid:
        """The scenarios."""
        return self.study.grid

    @property
    def rows(self) -> Iterator[tuple[dict[str, str], Sampled | str]]:
        """Every scenario's values of the axes, and what was found of it."""
        return ((self.grid.values(i), found) for i, found in enumerate(self.scenarios))

    @property
    def names(self) -> dict[str, str]:
        """Workload and topology as documents have them."""
        return {"workload": self.study.workload.source, "topology": self.study.topology.name}

    def entries(
        self, entry: type[_Entry], numbers: Callable[[Sampled], dict[str, Any]]
    ) -> tuple[_Entry, ...]:
        """An entry for each scenario: its settings, with its numbers or the reason of a failure."""
        return tuple(
            entry(
                settings=settings,
                **({"error": found} if isinstance(found, str) else numbers(found)),
            )
            for settings, found in self.rows
        )


def sample_sweep(
    study: Study,
    find: Callable[[int], Sampled],
    *,
    steps: int,
    seed: int,
    progress: Callable[[int, int, int], None] | None,
) -> SampledSweep[Sampled]:
    """What is found of each scenario of a study, or why it fails.

    `progress` is called with the scenarios done, failed, and all. Raises the error of the first
    scenario when none can run.
    """
    found: list[Sampled | str] = []
    first: StepsimError | None = None
    count = study.grid.size
    for scenario in range(count):
        try:
            found.append(find(scenario))
        except StepsimError as error:
            first = first or error
            found.append(str(error))
        if progress:
            progress(len(found), sum(isinstance(each, str) for each in found), count)
    if first and all(isinstance(each, str) for each in found):
        raise first
    return SampledSweep(
        study=study,
        steps=steps,
        seed=seed,
        scenarios=tuple(found),
    )
