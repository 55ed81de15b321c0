"""A validation as JSON, as tables of text, and against a limit."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stepsim.units import PS_PER_S
from stepsim.validation.validate import Compared, Errors, RunValidation, error_of

SCHEMA_VERSION = 1


def all_times(runs: Sequence[RunValidation], rows: Sequence[Compared]) -> list[Compared]:
    """Every time whose error counts."""
    return [*(each for run in runs for each in run.times()), *rows]


def exceeds(compared: Iterable[Compared], limit: float | None) -> bool:
    """Whether any absolute error is above a limit, a share; never without one."""
    return limit is not None and any(abs(each.error) > limit for each in compared)


def summary_errors(runs: Sequence[RunValidation], rows: Sequence[Compared]) -> dict[str, Errors]:
    """Errors by kind of number, kinds without numbers left out."""
    kinds = {
        "pipeline (replay)": [run.pipeline for run in runs],
        "step (replay)": [run.step for run in runs],
        "per-step operations (prediction)": [each for run in runs for each in run.finalize],
        "pipeline (prediction)": [e for r in runs for e in r.predicted if e.name == "pipeline"],
        "waits (replay)": [each for run in runs for each in run.waits],
        "step (prediction)": [
            *(e for r in runs for e in r.predicted if e.name == "step"),
            *rows,
        ],
    }
    return {name: error_of(compared) for name, compared in kinds.items() if compared}


def validation_json(runs: Sequence[RunValidation], rows: Sequence[Compared]) -> bytes:
    """The whole validation as JSON; times in seconds, errors as shares."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "runs": [_run(run) for run in runs],
        "rows": [_compared(row) for row in rows],
        "errors": {
            name: {"mean": errors.mean, "largest": errors.largest, "count": errors.count}
            for name, errors in summary_errors(runs, rows).items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


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
    }
