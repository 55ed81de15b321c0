"""A validation: its errors by kind of number, as JSON, and against a limit."""

from typing import Self

from stepsim.base.structs import Document, Names, Noun, Timed, json_text
from stepsim.runs.validate import Errors, RunEntry, Source, TimeEntry, error_of


class Validation(Noun):
    """Measured runs, and `rows`: steps of logs and of a table of measurements.

    `warnings` say what was assumed while reading and simulating.
    """

    runs: tuple[RunEntry, ...] = ()
    rows: tuple[TimeEntry, ...] = ()
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
                *(row for row in rows if row.source == Source.PREDICTION),
            ],
            **{
                f"step ({source})": [row for row in rows if row.source == source]
                for source in (Source.FIT, Source.EXPLAINED)
            },
        }
        errors = {name: error_of(compared) for name, compared in kinds.items()}
        return {name: found for name, found in errors.items() if found.count}


class ValidationDocument(Document, Timed):
    """`stepsim validate --json`: measured runs, rows of a table, and errors per kind of number."""

    runs: tuple[RunEntry, ...]
    rows: tuple[TimeEntry, ...]
    warnings: Names
    errors: dict[str, Errors]

    @classmethod
    def of(cls, found: Validation) -> Self:
        """The document of a validation."""
        return cls.taken_from(found, errors=found.errors())

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline, by two spaces a level."""
        return json_text(self.plain, indent=2)
