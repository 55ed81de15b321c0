"""Measured runs and profiles from Python: the words of the command line, as functions.

A run is a folder of traces, the trace of one rank, or a log of leaf modules: by its path, or loaded
once by `load_run`. `node_size` is in ranks; without it clocks tell, else it is 8. A profile says
where steps go, which workers are slow, and what would help.
"""

from collections.abc import Iterable, Mapping, Sequence

from stepsim.base.fields import checked
from stepsim.base.structs import File
from stepsim.documents.table import Sheet
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.stragglers import Stragglers, find_stragglers
from stepsim.face.described import opened
from stepsim.face.results import Result
from stepsim.face.viewed import Drawn, Viewed, taken_as
from stepsim.files.asked import read_options
from stepsim.files.calibrations import read_calibration, write_calibration
from stepsim.files.collectives.measurements import load_benchmarks
from stepsim.files.measured import (
    Run,
    load_measurements,
    load_profile,
    load_run,
    load_trace,
    message_bandwidths,
)
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.layers import Durations, parse_durations
from stepsim.measured.profile.events import Profile
from stepsim.measured.ready import ready_run
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable
from stepsim.runs.improve import Improvements, improve_profile
from stepsim.runs.measured import (
    calibrate_measured,
    replay_measured,
    validate_measured,
)
from stepsim.runs.validate import Validation
from stepsim.runs.what_if import WhatIf, change_run
from stepsim.views.profiles import improvements_shown, profile_replay_shown
from stepsim.views.validation import plot_validation, validation_shown

__all__ = [
    "ValidationResult",
    "calibrate",
    "improve",
    "load_profile",
    "load_run",
    "read_calibration",
    "simulate_run",
    "stragglers",
    "validate",
    "what_if",
    "write_calibration",
]


# to_json gives bytes of documents and a text of results
class ValidationResult(Drawn, Validation):  # type: ignore[misc]
    """Measured beside simulated times, and the ways to see them; `plot` draws these over those."""

    _kind = Validation

    _shown = validation_shown

    _draw = plot_validation


@checked
def calibrate(
    runs: Run | Iterable[Run],
    *,
    nccl: CommTable | File | Sequence[File] | None = None,
    comm_source: str = "",
    node_size: int | None = None,
) -> Calibration:
    """Host, message and gradient costs of a machine, and the overhead of its leaf-module logs.

    `nccl` are micro-benchmarks of the machine, or their files; of these `comm_source` chooses those
    whose machine or source holds it. What cannot be told is left out, and `unidentified` says why.
    Raises TraceError for runs that cannot be read, CalibrationError for benchmarks of several
    machines.
    """
    loaded = [opened(run, load_run, node_size=node_size) for run in _several(runs)]
    return calibrate_measured(loaded, load_benchmarks(nccl, comm_source))


@checked
def simulate_run(
    run: Run,
    *,
    calibration: Calibration | File | None = None,
    times: Durations | str | None = None,
    node_size: int | None = None,
) -> Result:
    """Replay a run as it was: its stage times, its schedule, blocking messages.

    Host and message times are those of the calibration, else the run's own; a log of leaf modules
    is simulated from these, and its calibrated overhead. `times` are stage times: median, mean or
    microbatch; without it a mean per microbatch where every rank was traced, else one mean. Raises
    TraceError for runs that cannot be read or replayed.
    """
    durations, known = parse_durations(times), opened(calibration, read_calibration)
    ran = opened(run, load_run, node_size=node_size)
    return taken_as(Result, replay_measured(ran, known, durations))


@checked
def validate(
    runs: Run | Iterable[Run],
    *,
    calibration: Calibration | File | None = None,
    nccl: CommTable | File | Sequence[File] | None = None,
    comm_source: str = "",
    leave_one_out: bool = False,
    times: Durations | str | None = None,
    node_size: int | None = None,
) -> ValidationResult:
    """Compare runs, and tables of measured steps (.csv, .toml), with their simulation.

    Without a calibration replays take a run's own host and message times; `leave_one_out`
    calibrates each run on all others. Raises PlanError for options that would do nothing,
    TraceError for runs and tables that cannot be read.
    """
    durations, known = parse_durations(times), opened(calibration, read_calibration)
    loaded, steps = load_measurements(_several(runs), node_size=node_size)
    found = validate_measured(
        loaded,
        steps,
        calibration=known,
        benchmarks=load_benchmarks(nccl, comm_source),
        leave_one_out=leave_one_out,
        durations=durations,
    )
    return taken_as(ValidationResult, found)


@checked
def what_if(
    run: RunSummary | File,
    *,
    calibration: Calibration | File | None = None,
    schedule: str | None = None,
    p2p: str | None = None,
    microbatches: int | None = None,
    balance: Sequence[int] | None = None,
    layers: int | None = None,
    bandwidth: Mapping[str, str] | None = None,
    node_size: int | None = None,
    dp: int | None = None,
    overlap_gradients: bool = False,
) -> WhatIf:
    """A run replayed, and once more with another schedule, balance or bandwidth of messages.

    `balance` are the layers of every stage, `layers` those of the model where the run's names do
    not tell, `bandwidth` e.g. `{"inter_node": "400Gbps"}`, `p2p` how the changed run sends messages
    (as the runtime of its schedule without it), `dp` the ranks that reduce a gradient; with
    `overlap_gradients` they do so beside the last backward of their stage. Raises PlanError or
    ScheduleError for changes that the run cannot make, TraceError for runs that cannot be read or
    replayed.
    """
    summary = opened(run, load_trace, node_size=node_size)
    return change_run(
        ready_run(summary, opened(calibration, read_calibration)),
        schedule=schedule,
        p2p=read_options({"p2p": p2p})[0].p2p,
        microbatches=microbatches,
        balance=balance,
        layers=layers,
        bandwidths=message_bandwidths(bandwidth or {}),
        dp=dp,
        overlap=overlap_gradients,
    )


def _several(runs: Run | Iterable[Run]) -> Iterable[Run]:
    """One run as a list of it."""
    return [runs] if isinstance(runs, RunSummary | LeafLog | File) else runs


# to_json gives bytes of documents and a text of results
class ImprovementsResult(Viewed, Improvements, eq=False):  # type: ignore[misc]
    """Changes of a profile, and the ways to see them."""

    profile: Profile

    _kind = Improvements

    def _shown(self) -> Sheet:
        return improvements_shown(self, self.profile)

    @checked
    def write_report(self, path: File) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.views.pages import improvements_page

        improvements_page(self, self.profile).write(path)


class StragglersResult(Viewed, Stragglers, eq=False):
    """What the slow workers of a profile cost, and the ways to see it."""

    _kind = ProfileDocument

    _shown = profile_replay_shown


@checked
def stragglers(run: Profile | File) -> StragglersResult:
    """Every step of a profile replayed, and what its slow workers cost.

    Raises TraceError for profiles that cannot be read or replayed.
    """
    profile = opened(run, load_profile)
    return taken_as(StragglersResult, find_stragglers(profile))


@checked
def improve(run: Profile | File, *, node_size: int | None = None) -> ImprovementsResult:
    """Named changes of a profile, ranked by what they would gain.

    `node_size` is the ranks per node where the profile does not tell them. Raises TraceError for
    profiles that cannot be read or replayed.
    """
    profile = opened(run, load_profile).on_nodes(node_size)
    return taken_as(ImprovementsResult, improve_profile(profile), profile=profile)
