"""A validation on published steps as JSON."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.documents import Document, Entry, Names
from stepsim.base.fields import Count, Seconds, Share
from stepsim.validation.published import PublishedComparison, PublishedValidation, SourceErrors


class _RowEntry(Entry, frozen=True, kw_only=True):
    """A published run; errors are predicted over measured, minus 1."""

    name: str
    source: str
    model: str
    device: str
    framework: str
    measured_s: Seconds
    predicted_s: Seconds
    calibrated_s: Seconds
    error: Share
    calibrated_error: Share
    measured_gib: Annotated[float | None, Meta(description="as the source reports it")]
    predicted_gib: float

    @classmethod
    def of(cls, row: PublishedComparison) -> Self:
        """The entry of a run."""
        step = row.step
        return cls.taken_from(
            row,
            name=step.name,
            source=step.source,
            model=step.architecture.name,
            device=step.device,
            framework=step.framework,
            measured_gib=step.memory_gib,
        )


class _SourceEntry(Entry, frozen=True, kw_only=True):
    """Errors of a source's runs, zero-shot and after one factor per source, device, precision."""

    source: str
    count: Count
    mean: Share
    median: Share
    largest: Share
    calibrated_mean: Share
    calibrated_largest: Share
    memory_mean: Share | None
    memory_largest: Share | None

    @classmethod
    def of(cls, errors: SourceErrors) -> Self:
        """The entry of a source."""
        return cls.taken_from(errors)


class PublishedDocument(Document, frozen=True, kw_only=True):
    """`stepsim validate steps.csv --json` of published models: rows, and errors per source."""

    sources: tuple[_SourceEntry, ...]
    rows: tuple[_RowEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, found: PublishedValidation) -> Self:
        """The document of a validation."""
        return cls(
            sources=tuple(map(_SourceEntry.of, found.errors())),
            rows=tuple(map(_RowEntry.of, found.rows)),
            warnings=found.warnings,
        )
