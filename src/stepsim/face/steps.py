"""Steps from Python: simulated, compared, varied; the words of the command line, as functions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import member, within
from stepsim.base.fields import checked
from stepsim.base.structs import File, replace
from stepsim.base.units import PS_PER_S
from stepsim.core.events import OnProgress
from stepsim.explore.noise.draws import NoiseModel, noise_model, simulate_noise
from stepsim.explore.sensitivity import find_sensitivity
from stepsim.face.described import takes_options, warn_caller
from stepsim.face.keywords import StepKeywords
from stepsim.face.results import Comparison, NoiseDistribution, Result, SensitivityResult
from stepsim.face.viewed import taken_as
from stepsim.files.asked import read_inputs, read_schedules
from stepsim.files.load import topology_of, workload_of
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    collective_cost,
    collective_shape,
    parse_algorithm,
)
from stepsim.network.one_collective import members_of
from stepsim.network.topology import Topology
from stepsim.network.topology.network import MAX_NPUS
from stepsim.parallel.schedules import Schedule
from stepsim.step.compare import compare_schedules
from stepsim.step.prepared import prepare
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike

_MOST_BYTES = 2**60
_DEFAULT_NOISE = NoiseModel(task=0.02)


@takes_options
@checked
def simulate(
    workload: Workload | Model | File,
    topology: "TopologyLike | None" = None,
    *,
    progress: OnProgress | None = None,
    fold_ranks: bool = True,
    **options: Unpack[StepKeywords],
) -> Result:
    """Simulate one training step.

    Without `topology` it is the machine of the device, else hgx-h100. `options` are those of
    `stepsim.options.StepOptions`, as people type them: `host_overhead="250 us"` (or 0.00025,
    seconds), `dp_bucket="25 MB"`, `slow="12:1.3,40-47:1.1"`, `compute_scale=0.5`, a schedule's
    name, .csv file or noun. Without `fold_ranks` every rank is simulated, not one of each class.
    What a reader should know of the input is a StepsimWarning, once per
    line of code, and stands in `warnings` of the result. Raises the errors of
    `stepsim.base.errors` when the input is wrong or contradictory.
    """
    job = read_inputs(workload, topology, options)
    ready = prepare(job)
    step = replace(ready, fold_ranks=fold_ranks).simulated(weigh=True, progress=progress)
    warn_caller(step.report.said)
    return taken_as(Result, step, inputs=job)


@takes_options
@checked
def compare(
    workload: Workload | Model | File,
    schedules: File | Schedule | Sequence[File | Schedule] | None = None,
    topology: "TopologyLike | None" = None,
    *,
    progress: OnProgress | None = None,
    **options: Unpack[StepKeywords],
) -> Comparison:
    """Simulate a workload under each schedule; `options` are those of `simulate`.

    `schedules` are a list, or a text such as `"1f1b,zb-h1"`; without them those of `stepsim
    compare` are taken. A schedule that cannot run the job is
    kept with its reason. Raises ScheduleError when none can, and every other error of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    if isinstance(schedules, str):
        schedules = schedules.split(",")
    if isinstance(schedules, Path | Schedule):
        schedules = [schedules]
    named = None if schedules is None else read_schedules(schedules)
    found = compare_schedules(job, named, progress)
    warn_caller(text for _, step in found.valid for text in step.report.said)
    return taken_as(Comparison, found, inputs=job)


@takes_options
@checked
def sensitivity(
    workload: Workload | Model | File,
    topology: "TopologyLike | None" = None,
    **options: Unpack[StepKeywords],
) -> SensitivityResult:
    """How the step time depends on links and compute; `options` are those of `simulate`.

    Raises PlanError with contention, under which times are no sums, and the errors of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    found = find_sensitivity(job)
    warn_caller(found.warnings)
    return taken_as(SensitivityResult, found)


@takes_options
@checked
def noise(
    workload: Workload | Model | File,
    topology: "TopologyLike | None" = None,
    *,
    model: NoiseModel | Mapping[str, float] = _DEFAULT_NOISE,
    samples: int = 1000,
    seed: int = 0,
    **options: Unpack[StepKeywords],
) -> NoiseDistribution:
    """How the step time is distributed when tasks take longer or shorter.

    `model` is a NoiseModel or its numbers, e.g. `{"task": 0.02, "rank": 0.01}`. `options` are those
    of `simulate`; equal arguments give equal samples. Raises PlanError with contention, and the
    errors of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    found = simulate_noise(
        job,
        model=model if isinstance(model, NoiseModel) else noise_model(model),
        samples=samples,
        seed=seed,
    )
    return taken_as(NoiseDistribution, found)


@checked
def collective_time(
    topology: "TopologyLike",
    kind: CollectiveKind | str,
    size_bytes: int,
    ranks: Sequence[int],
    algorithm: AlgorithmChoice | str = Algorithm.AUTO,
) -> float:
    """Seconds of one collective over these NPUs, the network to itself.

    `size_bytes` is the full (gathered) tensor; for all_to_all what each rank sends, its own share
    included. `algorithm` may name levels, e.g. `hierarchical:ring,direct`. Raises PlanError for
    unknown kinds, algorithms or ranks.
    """
    npus = min(max([0, *ranks]) + 1, MAX_NPUS) if isinstance(topology, File) else None
    network = topology_of(topology, npus)
    known = member(CollectiveKind, kind, "kind")
    if isinstance(algorithm, str):
        algorithm = parse_algorithm(algorithm)
    within("size_bytes", size_bytes, 0, _MOST_BYTES)
    shape = collective_shape(network, known, members_of(network, ranks), algorithm)
    return collective_cost(network, shape, size_bytes).time_ps / PS_PER_S


@checked
def load_workload(path: File, *, strict: bool = False) -> Workload:
    """Read a workload file, e.g. a SimAI / AICB / ASTRA-sim text.

    Raises WorkloadError naming file, line and field; with `strict` also for what is otherwise
    a warning about the file.
    """
    return workload_of(path, strict=strict)


@checked
def load_topology(
    topology: "TopologyLike",
    npus: int | None = None,
    *,
    numbers: Mapping[str, object] | None = None,
) -> Topology:
    """A shipped topology by name, a user's file, or a networkx graph, with room for `npus`.

    A file is TOML, ASTRA-sim's network YAML or SimAI's topology text; what a graph must have is in
    `stepsim.files.topology.graph`. A topology is taken as it is. `numbers` replace those of its
    links, e.g. `{"fabric.bandwidth": "400 Gbps"}`. Raises TopologyError naming the
    file and entry, or the node or edge, at fault, or when the topology is too small.
    """
    return topology_of(topology, npus, numbers=numbers)
