"""What stepsim understands of a model, a workload, a machine or a recorded run, from Python."""

from collections.abc import Sequence
from functools import partial
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from stepsim.base.errors import TopologyError, errors_at
from stepsim.base.fields import checked
from stepsim.base.structs import File, Names, Noun
from stepsim.documents.table import Sheet, Shown, Table
from stepsim.explain.stragglers import find_stragglers
from stepsim.face.described import takes_options, warn_caller
from stepsim.face.keywords import StepKeywords
from stepsim.face.viewed import Viewed
from stepsim.files.accelerators import accelerator_of
from stepsim.files.asked import read_inputs
from stepsim.files.load import is_topology, public_names, topology_of
from stepsim.files.measured import load_profile, load_run
from stepsim.files.traces.forms import is_measured, is_profile
from stepsim.network.topology.inspection import inspect_topology
from stepsim.show.frames import Tables, columns_of_rows, first_table
from stepsim.step.inspection import inspect_job
from stepsim.step.job import job_of
from stepsim.views.inspection import (
    constants_shown,
    topology_shown,
    workload_shown,
)
from stepsim.views.measured import measured_shown
from stepsim.views.profiles import profile_shown
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike

# The table of names with values.
_FACTS = "facts"


class InspectionResult(Viewed, Noun):
    """What is understood of something: `warnings`, and tables as `stepsim inspect` prints them."""

    shown: tuple[Shown, ...]
    warnings: Names = ()

    def to_json(self) -> str:
        """All tables as JSON: of each its columns by name, in the units of `to_frame`."""
        plain = {name: columns() for name, columns in self._tables().items()}
        return msgspec.json.encode(plain).decode()

    def _shown(self) -> Sheet:
        return self.shown

    def _tables(self) -> Tables:
        facts = [pair for each in self.shown if isinstance(each, tuple) for pair in each]
        known: Tables = {_FACTS: partial(columns_of_rows, ("name", "value"), facts)}
        tables = (each for each in self.shown if isinstance(each, Table))
        return known | {each.caption: partial(first_table, [each]) for each in tables}


@takes_options
@checked
def inspect(
    subject: "Workload | Model | TopologyLike",
    topology: "TopologyLike | None" = None,
    **options: Unpack[StepKeywords],
) -> InspectionResult:
    """What stepsim understands of a model, workload, topology, GPU, framework, run or profile.

    `subject` is a name, a file or a noun. Of a workload or model `topology` and `options` say what
    it runs on and how, as for `simulate`. The result prints itself, and gives its tables by
    `to_frame`. Raises the errors of the readers.
    """
    file = subject if isinstance(subject, File) else ""
    path = Path(file) if file and exists(file) else None
    work = subject if isinstance(subject, Workload | Model) else file
    shown: Sheet
    warnings: Sequence[str] = ()
    if path and is_profile(path):
        profile = load_profile(path)
        shown, warnings = profile_shown(find_stragglers(profile)), profile.warnings
    elif path and is_measured(path):
        run = load_run(path)
        shown, warnings = measured_shown(run), run.warnings
    elif file and (machine := accelerator_of(file)):
        shown = constants_shown(machine)
    elif work and not (file and is_topology(str(file))):
        job = read_inputs(work, topology, options)
        seen, device = inspect_job(job_of(job))
        shown, warnings = workload_shown(seen, device), seen.warnings
    else:
        with errors_at("subject", TopologyError):
            network = topology_of(subject)
        shown = topology_shown(inspect_topology(network), network.library)
    found = InspectionResult(shown=tuple(shown), warnings=tuple(warnings))
    warn_caller(found.warnings)
    return found


def list_models() -> list[str]:
    """Names of the public models, which `simulate`, `plan` and `inspect` take."""
    return public_names()
