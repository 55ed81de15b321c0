"""A validation: its errors by kind of number, as JSON, and against a limit."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.structs import Document, Entry, Names, Noun, Seconds, Share, json_text
from stepsim.runs.validate import Compared, Errors, RunValidation, Source, error_of


class Validation(Noun):
    """Measured runs, and `rows`: steps of logs and of a table of measurements.

    `warnings` say what was assumed while reading and simulating.
    """

    runs: tuple[RunValidation, ...] = ()
    rows: tuple[Compared, ...] = ()
    warnings: Names = ()

    def exceeds(self, limit: float) -> bool:
        """Whether the error of any time is above a limit, a share."""
        times = [*(each for run in self.runs for each in run.times()), *self.rows]
        return any(abs(each.error) > limit for each in times)

    def errors(self) -> dict[str, Errors]:
        """Errors by kind of number, kinds without numbers left out."""
        runs, rows = self.runs, self.rows
        kinds = {
            "pipeline (replay)": [run.pipeline for run in runs],
            "step (replay)": [run.step for run in runs],
            "per-step operations (prediction)": [each for run in runs for each in run.finalize],
            "pipeline (prediction)": [e for r in runs for e in r.predicted if e.name == "pipeline"],
            "waits (replay)": [each for run in runs for each in run.waits],
            "step (prediction)": [
                *(each for run in runs for each in run.predicted if each.name == "step"),
                *(row for row in rows if row.source is Source.PREDICTION),
            ],
            **{
                f"step ({source})": [row for row in rows if row.source is source]
                for source in (Source.FIT, Source.EXPLAINED)
            },
        }
        return {name: error_of(compared) for name, compared in kinds.items() if compared}


class _TimeEntry(Entry):
    """A time, simulated and measured; `error` is simulated over measured, minus 1."""

    name: str
    source: str
    simulated_s: Seconds
    measured_s: Seconds
    error: Share | None
    samples_s: tuple[Seconds, ...]

    @classmethod
    def of(cls, found: Compared) -> Self:
        """The entry of a time; it has no error where nothing was measured."""
        return cls.taken_from(found, error=found.error if found.measured_ps else None)


class _BubbleEntry(Entry):
    """Bubbles, shares of a rank's pipeline time."""

    rank: int
    stage: int
    simulated: Share
    measured: Share
    points: Annotated[float, Meta(description="difference in percentage points")]


class _RunEntry(Entry):
    """A measured run; `pipeline`, `step`, `waits` and `bubbles` are replays."""

    name: str
    durations: str
    calibrated_from: Names
    calibrated_on_itself: bool
    inferred_stages: tuple[int, ...]
    pipeline: _TimeEntry
    step: _TimeEntry
    predicted: tuple[_TimeEntry, ...]
    finalize: tuple[_TimeEntry, ...]
    waits: tuple[_TimeEntry, ...]
    bubbles: tuple[_BubbleEntry, ...]
    notes: Names

    @classmethod
    def of(cls, run: RunValidation) -> Self:
        """The entry of a run."""
        return cls.taken_from(
            run,
            inferred_stages=run.inferred,
            pipeline=_TimeEntry.of(run.pipeline),
            step=_TimeEntry.of(run.step),
            predicted=[*map(_TimeEntry.of, run.predicted)],
            finalize=[*map(_TimeEntry.of, run.finalize)],
            waits=[*map(_TimeEntry.of, run.waits)],
        )


class ValidationDocument(Document):
    """`stepsim validate --json`: measured runs, rows of a table, and errors per kind of number."""

    runs: tuple[_RunEntry, ...]
    rows: tuple[_TimeEntry, ...]
    warnings: Names
    errors: dict[str, Errors]

    @classmethod
    def of(cls, found: Validation) -> Self:
        """The document of a validation."""
        return cls.taken_from(
            found,
            runs=tuple(map(_RunEntry.of, found.runs)),
            rows=tuple(map(_TimeEntry.of, found.rows)),
            errors=found.errors(),
        )

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline, by two spaces a level."""
        return json_text(self, indent=2)
