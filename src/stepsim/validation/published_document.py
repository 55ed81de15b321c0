"""A validation on published steps as JSON."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.documents import Document, Entry, Names
from stepsim.base.fields import Count, Seconds, Share
from stepsim.validation.published import (
    PublishedComparison,
    PublishedMemory,
    PublishedValidation,
    SourceErrors,
)


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
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]

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
            memory_share=row.memory.share,
        )


class _RanOutEntry(Entry, frozen=True, kw_only=True):
    """A published run that ran out of memory; above a share of 1 that was predicted."""

    name: str
    source: str
    model: str
    device: str
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]

    @classmethod
    def of(cls, memory: PublishedMemory) -> Self:
        """The entry of a run."""
        step = memory.step
        return cls(
            name=step.name,
            source=step.source,
            model=step.architecture.name,
            device=step.device,
            memory_share=memory.share,
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
    memory_calibrated: Share | None

    @classmethod
    def of(cls, errors: SourceErrors) -> Self:
        """The entry of a source."""
        return cls.taken_from(errors)


class PublishedDocument(Document, frozen=True, kw_only=True):
    """`stepsim validate steps.csv --json` of published models: rows, and errors per source."""

    sources: tuple[_SourceEntry, ...]
    rows: tuple[_RowEntry, ...]
    ran_out: tuple[_RanOutEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, found: PublishedValidation) -> Self:
        """The document of a validation."""
        return cls(
            sources=tuple(map(_SourceEntry.of, found.errors())),
            rows=tuple(map(_RowEntry.of, found.rows)),
            ran_out=tuple(map(_RanOutEntry.of, found.ran_out)),
            warnings=found.warnings,
        )
