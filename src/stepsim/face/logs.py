"""Training logs from Python: `stepsim explain` as a function."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from stepsim.base.fields import checked
from stepsim.base.structs import File
from stepsim.face.described import takes_options, warn_caller
from stepsim.face.keywords import StepKeywords
from stepsim.face.viewed import Viewed, taken_as
from stepsim.runs.explained import LogExplanation, explained_log
from stepsim.views.explanation import explanation_shown

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike


# to_json gives bytes of documents and a text of results
class LogExplanationResult(Viewed, LogExplanation):  # type: ignore[misc]
    """A training log beside its prediction, and the ways to see it."""

    _kind = LogExplanation

    _shown = explanation_shown


@takes_options
@checked
def explain_log(
    log: File,
    topology: "TopologyLike | None" = None,
    *,
    config: File | None = None,
    plan_file: File | None = None,
    **options: Unpack[StepKeywords],
) -> LogExplanationResult:
    """A training log beside its prediction, and what could make the difference.

    The log is one of a framework that `files/traces/log_forms.toml` lists. What it
    says of its job is taken; `options`, those of `simulate`, come first. `config` names the model
    where the log does not: a public name or a file. `plan_file` is a plan of `stepsim plan` or of a
    framework. Raises TraceError for a log that cannot be read, WorkloadError and PlanError where
    nobody says the model or its GPUs, and the errors of `simulate`.
    """
    found = explained_log(
        Path(log),
        options,
        config=config,
        plan_file=Path(plan_file) if plan_file else None,
        topology=topology,
    )
    warn_caller(found.warnings)
    return taken_as(LogExplanationResult, found)
