"""Set the constants that no kernel tells on published steps, and judge each source without it.

python benchmarks/model_constants.py ../shared             constants as set on all sources
python benchmarks/model_constants.py ../shared --write     writes them into devices/ and frameworks/
python benchmarks/model_constants.py ../shared --left-out  errors of each source, left out
python benchmarks/model_constants.py ../shared --errors    writes them into frameworks/*.toml,

A constant is set on the runs of every source that it concerns, each source with the same weight, by
the closed form. With a source left out, it is set again on the others: a generation's clocks on
other runs on it, a framework's numbers on its other runs and those of its family. The runs of the
source are then simulated with these, on the machine's own topology.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

import numpy as np
import tomli_w
from accuracy_order import most_npus
from left_out import (
    LeftOut,
    error_tables,
    is_held,
)

from stepsim.base.arrays import Floats
from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.accelerators import device_names, framework_names, read_device
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, with_numbers
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.files.reading import DEFAULT_TOPOLOGY, shipped_folder
from stepsim.options import StepOptions
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.runs.published import model_of
from stepsim.step.prepared import prepare
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.framework import Framework, Recipe
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.model import Model
from stepsim.workload.model.step_time import StepModel

FAMILIES = (
    ("megatron-core", "nemo-performance", "megatron-bridge", "megatron-2021"),
    (
        *("torch-fsdp-compiled", "torch-fsdp-compiled-2024", "composer-fsdp"),
        "megatron-deepspeed",
    ),
    ("torch-fsdp-eager", "nanotron", "internevo"),
)
"""Frameworks by how much of a layer's memory-bound work they fuse: all, a part, nothing."""

GRIDS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "sustained": [x / 100 for x in range(45, 121)],
        "nvfp4": [x / 1000 for x in range(250, 600, 10)],
        "memory_factor": [0.8 * 1.03**n for n in range(45)],
        "host_layer": [x / 4 for x in range(2, 27)],
    }
)
"""Values that are tried: shares of rates and of the peak, a factor, and ms of a layer."""

GUESSED = {"sustained": 0.9, "nvfp4": 0.46, "memory_factor": 1.5, "host_layer": 3.0}
"""What a constant is where no run tells it."""

_SAME = (
    *("tp", "cp", "pp", "ep", "expert_tp", "microbatch_size", "global_batch", "sequence"),
    *("precision", "sequence_parallel", "zero", "shard_ranks", "reshard", "recompute"),
    *("recompute_layers", "attention", "dispatch", "tp_comm_overlap", "dp_overlap", "cuda_graph"),
    *("expert_overlap", "shared_overlap", "delay_wgrad"),
)
"""Fields of a plan that are options of a step by the same name."""
_SMALL = ("korthikanti22", "sc21-megatron", "mlperf-gpt3")
"""Sources of few runs, for a trial with `--small`."""

PULL = 0.03
"""What it costs, as a share of error, to be a factor of e away from what others have."""

SHARED_BY_POWER: Mapping[str, tuple[str, float]] = MappingProxyType(
    {"H100-96GB-500W": ("hopper", (500 / 700) ** 0.5)}
)
"""Devices whose power is capped: another's clocks times the root of the power, where not known."""

MACHINES = ("simumax-b200",)
"""Sources that set nothing: one lab's machine, slower by 16 to 38 % than all others of its GPU.

Such a machine is described by a calibration.
"""

CARDS = ("mb-card-perf", "mb-card-pretrain", "mb-summary")
"""Sources of whole pretraining runs among model cards."""
PUBLIC = Path(__file__).parent / "public_steps.csv"
"""Published runs that are in the repository, on machines whose constants no run sets."""

AS_SHIPPED = ("tpu-recipes",)
"""Their sources: they set nothing, no range of others either, and are predicted as shipped."""

Key = tuple[str, str]
"""What a constant is, and the generation, device or framework that has it."""


def owner_of(device: str) -> str:
    """Whose clocks a device has: its generation's, its own where its power is capped."""
    found = read_device(device)
    return found.name if found.name in SHARED_BY_POWER else found.generation


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Published runs that are alike but for their plans: priced together."""

    model: StepModel
    precision: Precision
    steps: tuple[PublishedStep, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The constants that their prices depend on."""
        owner, framework = owner_of(self.model.device.name), self.model.framework.name
        nvfp4 = [("nvfp4", owner)] if self.precision is Precision.NVFP4 else []
        return (
            ("sustained", owner),
            *nvfp4,
            ("memory_factor", framework),
            ("host_layer", framework),
        )

    def with_constants(self, values: Mapping[Key, float]) -> StepModel:
        """What prices them under other constants."""
        device, framework = self.model.device, self.model.framework
        owner = owner_of(device.name)
        rates = dict(device.rates)
        if Precision.NVFP4 in rates and ("nvfp4", owner) in values:
            rate = rates[Precision.NVFP4]
            rates[Precision.NVFP4] = replace(rate, rate=rate.peak * values["nvfp4", owner])
        device = replace(
            device,
            rates=MappingProxyType(rates),
            sustained=values.get(("sustained", owner), device.sustained),
        )
        framework = replace(
            framework,
            memory_factor=values.get(("memory_factor", framework.name), framework.memory_factor),
            host_layer_ps=round(
                values.get(("host_layer", framework.name), framework.host_layer_ps / 1e9) * 1e9
            ),
        )
        return replace(self.model, device=device, framework=framework)

    def log_ratios(self, values: Mapping[Key, float]) -> Floats:
        """Logarithms of predicted over measured seconds."""
        model = self.with_constants(values)
        measured = np.array([step.measured_s for step in self.steps])
        found: Floats = np.log(model.seconds([step.plan for step in self.steps]) / measured)
        return found


def grouped(steps: Iterable[PublishedStep]) -> list[Runs]:
    """Runs by what prices them."""
    groups: dict[tuple[object, ...], list[PublishedStep]] = defaultdict(list)
    models: dict[tuple[object, ...], StepModel] = {}
    for step in steps:
        model = model_of(step)
        machine = step.device, step.framework, step.node_bandwidth, step.npus_per_node
        key = (step.source, step.architecture, *machine, step.plan.precision)
        groups[key].append(step)
        models[key] = model
    return [
        Runs(model=models[key], precision=each[0].plan.precision, steps=tuple(each))
        for key, each in groups.items()
    ]


@dataclass(kw_only=True)
class Fit:
    """Constants set on some runs, one after the other until none changes."""

    runs: Sequence[Runs]
    values: dict[Key, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._using: dict[Key, list[Runs]] = defaultdict(list)
        for each in self.runs:
            if each.steps[0].source not in (*MACHINES, *AS_SHIPPED):
                for key in each.keys:
                    self._using[key].append(each)

    def set_all(self, keys: Collection[Key], rounds: int = 3) -> None:
        """Set these constants; those of no run take what others have."""
        for _ in range(rounds):
            before = dict(self.values)
            for key in sorted(keys):
                self.values[key] = self._best(key) if self._using[key] else self.expected(key)
            if before == self.values:
                return

    def expected(self, key: Key) -> float:
        """What others have: the family's median, a capped device's share, else a guess."""
        name, owner = key
        if owner in SHARED_BY_POWER and name == "sustained":
            other, share = SHARED_BY_POWER[owner]
            clocks: float = self.values.get((name, other), GUESSED[name])
            return share * clocks
        alike: Iterable[str] = next((each for each in FAMILIES if owner in each), ())
        if name in ("sustained", "nvfp4"):
            alike = sorted({read_device(each).generation for each in device_names()})
        known = [
            value
            for other in alike
            if (value := self.values.get((name, other)))
            and other != owner
            and self._using[name, other]
        ]
        return float(np.median(known)) if known else GUESSED[name]

    def _best(self, key: Key) -> float:
        """The value with the least mean error over sources, pulled towards what others have."""
        expected = self.expected(key)

        def cost(value: float) -> float:
            changed = self.values | {key: value}
            by_source: dict[str, list[float]] = defaultdict(list)
            for each in self._using[key]:
                by_source[each.steps[0].source] += np.abs(each.log_ratios(changed)).tolist()
            pull = PULL * abs(log(value / expected))
            return fmean(map(fmean, by_source.values())) + pull

        return descended(GRIDS[key[0]], self.values.get(key, expected), cost)


def descended(grid: Sequence[float], start: float, cost: Callable[[float], float]) -> float:
    """The best value of a grid, from where one was on downhill, by steps of 4, 2 and 1."""
    known = cache(lambda place: cost(grid[place]))
    here = min(range(len(grid)), key=lambda i: abs(grid[i] - start))
    for stride in (4, 2, 1):
        while True:
            near = [here, here - stride, here + stride]
            best = min((i for i in near if 0 <= i < len(grid)), key=known)
            if best == here:
                break
            here = best
    return grid[here]


def shipped_values(runs: Sequence[Runs]) -> dict[Key, float]:
    """The constants that the shipped files have."""
    values: dict[Key, float] = {}
    for each in runs:
        device, framework = each.model.device, each.model.framework
        owner = owner_of(device.name)
        values["sustained", owner] = device.sustained
        if Precision.NVFP4 in device.rates:
            rate = device.rates[Precision.NVFP4]
            values["nvfp4", owner] = rate.rate / rate.peak
        values["memory_factor", framework.name] = framework.memory_factor
        values["host_layer", framework.name] = framework.host_layer_ps / 1e9
    return values


def left_out(runs: Sequence[Runs], source: str, values: Mapping[Key, float]) -> dict[Key, float]:
    """The constants set again without a source: those that it had a part in."""
    if source in AS_SHIPPED:
        return dict(values)
    mine = [each for each in runs if each.steps[0].source == source]
    others = [each for each in runs if each.steps[0].source != source]
    again = {key for each in mine for key in each.keys}
    fit = Fit(runs=others, values=dict(values))
    fit.set_all(again)
    return fit.values


def simulated_s(step: PublishedStep, model: StepModel) -> float:
    """Seconds of the step as `simulate` predicts it: the same prices on the machine's own network.

    Raises the errors of `stepsim.base.errors` where the job cannot run there.
    """
    topology = topology_of(model.device.topology or DEFAULT_TOPOLOGY)
    if step.node_bandwidth is not None:
        share = f"{step.node_bandwidth / step.npus_per_node} B/s"
        outer = {f"{each.name}.bandwidth": share for each in topology.link_classes[1:]}
        topology = with_numbers(topology, outer)
    plan, framework = step.plan, _as_run(model.framework, step)
    said = {name: getattr(plan, name) for name in _SAME}
    if plan.recompute_modules:
        said["recompute"] = None  # modules are a recipe's where nobody says what is recomputed
    options = StepOptions(
        npus=plan.npus,
        schedule=PAIRED if plan.runs_pairs else "interleaved" if plan.chunks > 1 else "1f1b",
        chunks=plan.chunks,
        layout=plan.layout.text(),
        recipe=bool(framework.recipes),
        cp_comm=plan.context,
        device=model.device,
        framework=framework,
        **said,
    )
    work = Model(source=step.name, architecture=step.architecture)
    return prepare(StepInputs(work, topology, options), quick=True).step_time_ps() / PS_PER_S


def _as_run(framework: Framework, step: PublishedStep) -> Framework:
    """The framework that runs a step as its row says: nothing by default, nor by another recipe."""
    plan = step.plan
    recipe = Recipe(
        model=step.architecture.name,
        sharded=plan.zero >= 3,
        recompute_modules=plan.recompute_modules,
        offload_layers=plan.offload_layers,
    )
    scopes = plan.graph_scopes
    return replace(
        framework,
        graph_scopes=framework.graph_scopes if scopes is None else scopes,
        recipes=(recipe,) if plan.recompute_modules else (),
        defaults=(),
    )


def judged(runs: Sequence[Runs], values: Mapping[Key, float]) -> Iterator[LeftOut]:
    """Every run simulated with constants that were set without its source."""
    for source in sorted({each.steps[0].source for each in runs}):
        without = left_out(runs, source, values)
        for each in runs:
            if each.steps[0].source != source:
                continue
            model = each.with_constants(without)
            for step in each.steps:
                try:
                    found = simulated_s(step, model)
                except StepsimError as error:
                    print(f"{source} {step.name}: {error}", file=sys.stderr)
                    continue
                yield LeftOut(step=step, framework=model.framework.name, predicted_s=found)


def of_cards(path: Path) -> Iterator[LeftOut]:
    """Runs of model cards, which set no constant, simulated with those that are shipped.

    Of fine-tuning nobody knows how long samples are.
    """
    for each in grouped(step for step in comparable(path) if step.source in CARDS):
        for step in each.steps:
            found = simulated_s(step, each.model)
            yield LeftOut(step=step, framework=each.model.framework.name, predicted_s=found)


def comparable(path: Path) -> list[PublishedStep]:
    """Complete runs with a time, nanotron's of as many GPUs as its cluster served well.

    The others are counted; plans that stepsim refuses are named.
    """
    steps, warnings = read_published_steps(path)
    found, incomplete = [], 0
    refused = list(warnings)
    for step in steps:
        incomplete += not step.is_complete
        if not step.is_complete or not step.measured_s or step.plan.npus > most_npus(step):
            continue
        try:
            stage_slices(step.architecture, step.plan)
        except StepsimError as error:
            refused.append(f"{step.source} {step.name}: {error}")
            continue
        found.append(step)
    print(f"{len(found)} runs, {incomplete} more without a complete layout", file=sys.stderr)
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    return found


def main() -> None:
    given = Path(next(each for each in sys.argv[1:] if not each.startswith("--")))
    path = given if given.suffix == ".csv" else given / "reference" / "steps" / "dev.csv"
    small = "--small" in sys.argv
    steps = comparable(path) if path == PUBLIC else [*comparable(path), *comparable(PUBLIC)]
    runs = grouped(step for step in steps if not small or step.source in _SMALL)
    values = shipped_values(runs)
    if {"--errors", "--left-out"}.isdisjoint(sys.argv):
        fit = Fit(runs=runs, values=values)
        setting = [each for each in runs if each.steps[0].source not in AS_SHIPPED]
        fit.set_all({key for each in setting for key in each.keys})
        for (name, owner), value in sorted(fit.values.items()):
            print(f"{owner:26}{name:16}{value:.4g}")
        if "--write" in sys.argv:
            write_constants(fit.values)
        return
    rows = tuple(judged(runs, values))
    if given.suffix != ".csv" and not small:
        rows += tuple(of_cards(path.parent / "cards_dev.csv"))
    print_by_source(rows)
    if "--errors" in sys.argv:
        write_errors(rows)


def print_by_source(rows: Sequence[LeftOut]) -> None:
    """Error and bias of each source, their mean, and the share of runs in the range of others."""
    for row in (row for row in rows if row.step.source in AS_SHIPPED):
        print(f"{row.step.source} {row.step.name} {row.step.model}: {row.error:+.1%}, as shipped")
    rows = [row for row in rows if row.step.source not in AS_SHIPPED]
    for kind, sparse in (("dense", False), ("experts", True)):
        alike = [row for row in rows if row.is_sparse is sparse]
        if not alike:
            continue
        by_source: dict[str, list[float]] = defaultdict(list)
        for row in alike:
            by_source[row.step.source].append(row.error)
        means = []
        for source, errors in by_source.items():
            means.append(fmean(map(abs, errors)))
            print(f"{kind:8}{source:22}{len(errors):4} {means[-1]:7.1%} {fmean(errors):+7.1%}")
        print(f"{kind:8}mean of {len(means)} sources: {fmean(means):.1%}")
    print_ranges(rows)


def print_ranges(rows: Sequence[LeftOut]) -> None:
    """The share of runs that the range of the runs of others holds, kind by kind."""
    held: dict[str, list[bool]] = defaultdict(list)
    for row, is_inside in is_held(rows):
        generation = row.generation.partition("-")[0]
        kind = "hybrid" if row.mixes else "experts" if row.is_sparse else "dense"
        for name in (kind, *([] if row.mixes else [generation])):
            held[name].append(is_inside)
    for name, each in held.items():
        print(f"{name:10}{len(each):4} runs, {fmean(each):.1%} in the range of others")


def write_constants(values: Mapping[Key, float]) -> None:
    """Replace the constants in the files of devices and frameworks."""
    for name in device_names():
        owner, device = owner_of(name), read_device(name)
        peak = device.rates.get(Precision.NVFP4)
        changed = {"sustained": values.get(("sustained", owner))}
        path = shipped_folder("devices") / f"{name}.toml"
        _replace(path, changed)
        if peak and ("nvfp4", owner) in values:
            rate = peak.peak * values["nvfp4", owner] / 1e12
            _replace(path, {"rate": float(f"{rate:.4g}")}, after="[rate.nvfp4]")
    for name in framework_names():
        host = values.get(("host_layer", name))
        changed = {"memory_factor": values.get(("memory_factor", name))}
        path = shipped_folder("frameworks") / f"{name}.toml"
        _replace(path, changed | {"host_layer": host and f"{host:g} ms"})


def _replace(path: Path, changed: Mapping[str, object], after: str = "") -> None:
    """Put values in place of those of a file, the first of their name `after` a line."""
    head, mark, tail = path.read_text().partition(after) if after else ("", "", path.read_text())
    lines = tail.splitlines()
    for name, value in changed.items():
        number = next((i for i, line in enumerate(lines) if line.startswith(f"{name} = ")), None)
        if value is not None and number is not None:
            shown = float(f"{value:.3g}") if isinstance(value, float) and not after else value
            lines[number] = tomli_w.dumps({name: shown}).strip()
    path.write_text(head + mark + "\n".join(lines) + "\n")


def write_errors(rows: Sequence[LeftOut]) -> None:
    """Replace the `[[error]]` tables at the end of each framework file."""
    tables = error_tables(rows, as_shipped=AS_SHIPPED)
    for name in framework_names():
        path = shipped_folder("frameworks") / f"{name}.toml"
        kept = path.read_text().split("[[error]]")[0].rstrip()
        written = "\n".join(f"[[error]]\n{tomli_w.dumps(each)}" for each in tables.get(name, []))
        path.write_text(f"{kept}\n\n{written}" if written else f"{kept}\n")


if __name__ == "__main__":
    main()
