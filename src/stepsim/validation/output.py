"""A validation: its errors by kind of number, as JSON, and against a limit."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepsim.base.units import PS_PER_S
from stepsim.validation.validate import Compared, Errors, RunValidation, Source, error_of

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Measured runs, and `rows`: steps of logs and of a table of measurements.

    `warnings` say what was assumed while reading and simulating.
    """

    runs: tuple[RunValidation, ...] = ()
    rows: tuple[Compared, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def exceeds(self, limit: float) -> bool:
        """Whether the error of any time is above a limit, a share."""
        times = [*(each for run in self.runs for each in run.times()), *self.rows]
        return any(abs(each.error) > limit for each in times)

    def errors(self) -> dict[str, Errors]:
        """Errors by kind of number, kinds without numbers left out."""
        runs, rows = self.runs, self.rows
        kinds = {
            "pipeline (replay)": [run.pipeline for run in runs],
            "step (replay)": [
                *(run.step for run in runs),
                *(row for row in rows if row.source is Source.REPLAY),
            ],
            "per-step operations (prediction)": [each for run in runs for each in run.finalize],
            "pipeline (prediction)": [e for r in runs for e in r.predicted if e.name == "pipeline"],
            "waits (replay)": [each for run in runs for each in run.waits],
            "step (prediction)": [
                *(each for run in runs for each in run.predicted if each.name == "step"),
                *(row for row in rows if row.source is Source.PREDICTION),
            ],
        }
        return {name: error_of(compared) for name, compared in kinds.items() if compared}

    def to_json(self) -> str:
        """The whole validation as JSON; times in seconds, errors as shares."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "runs": [_run(run) for run in self.runs],
            "rows": [_compared(row) for row in self.rows],
            "warnings": self.warnings,
            "errors": {
                name: {"mean": errors.mean, "largest": errors.largest, "count": errors.count}
                for name, errors in self.errors().items()
            },
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _run(run: RunValidation) -> dict[str, Any]:
    return {
        "name": run.name,
        "durations": str(run.durations),
        "calibrated_from": run.calibrated_from,
        "calibrated_on_itself": run.calibrated_on_itself,
        "inferred_stages": run.inferred,
        "pipeline": _compared(run.pipeline),
        "step": _compared(run.step),
        "predicted": [_compared(each) for each in run.predicted],
        "finalize": [_compared(each) for each in run.finalize],
        "waits": [_compared(each) for each in run.waits],
        "bubbles": [
            {
                "rank": each.rank,
                "stage": each.stage,
                "simulated": each.simulated,
                "measured": each.measured,
                "points": each.points,
            }
            for each in run.bubbles
        ],
        "notes": run.notes,
    }


def _compared(each: Compared) -> dict[str, Any]:
    return {
        "name": each.name,
        "source": str(each.source),
        "simulated_s": each.simulated_ps / PS_PER_S,
        "measured_s": each.measured_ps / PS_PER_S,
        "error": each.error if each.measured_ps else None,
        "samples_s": [time / PS_PER_S for time in each.samples_ps],
    }
