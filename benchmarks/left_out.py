"""Errors of predictions whose constants were set without the source that is predicted."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, log1p
from statistics import fmean
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from stepsim.files.accelerators import read_device
from stepsim.files.model_steps import PublishedStep

ALSO_OF = MappingProxyType({"nemo-performance": "megatron-core"})
"""Frameworks whose runs count for another as well: NeMo's kernels and host are Megatron-Core's."""

KIN = (
    ("megatron-core", "nemo-performance", "megatron-bridge", "megatron-2021", "megatron-deepspeed"),
    (
        *("torch-fsdp-compiled", "torch-fsdp-compiled-2024", "composer-fsdp", "torch-fsdp-eager"),
        *("nanotron", "internevo"),
    ),
)
"""Frameworks whose runs tell how far off predictions of each other are: Megatron's, torch's."""
COVERED = 0.8
"""Share of the runs of a model family of another source that a range holds."""
_FEWEST = 3
"""Model families that a range is of at least."""
_WIDEST = 1.5
"""Runs that disagree more than this power of their range widens are no pool: a larger one is."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A published run, and its seconds as predicted with constants set without its source."""

    step: PublishedStep
    framework: str
    predicted_s: float

    @property
    def is_sparse(self) -> bool:
        """Whether its model has experts."""
        return self.step.architecture.is_sparse

    @property
    def mixes(self) -> bool:
        """Whether its model has layers without usual attention."""
        return self.step.architecture.mixes

    @property
    def generation(self) -> str:
        """That of its GPUs."""
        return read_device(self.step.device).generation

    @property
    def unit(self) -> tuple[str, str]:
        """What is left out: a family of models of one source, e.g. llama of megatron-bridge."""
        name = self.step.model.lower()
        end = next((i for i, each in enumerate(name) if not each.isalpha()), None)
        return name[:end], self.step.source

    @property
    def log_ratio(self) -> float:
        """Logarithm of predicted over measured seconds."""
        return log1p(self.error)

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.step.error(self.predicted_s)


def measured_range(rows: Iterable[LeftOut]) -> tuple[float, float]:
    """Factors on a prediction between which `COVERED` of measured steps lie.

    Each run counts as one over the root of the runs of its unit, so that a unit of many runs counts
    for more than one of few, and not for all.
    """
    by_unit: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        by_unit[row.unit].append(-row.log_ratio)
    logs = np.array([each for logs in by_unit.values() for each in logs])
    weights = np.array([len(logs) ** -0.5 for logs in by_unit.values() for _ in logs])
    order = np.argsort(logs)
    share = np.cumsum(weights[order]) - weights[order] / 2
    edges = np.array([(1 - COVERED) / 2, (1 + COVERED) / 2]) * weights.sum()
    low, high = np.interp(edges, share, logs[order])
    return exp(low), exp(high)


def coverage(rows: Sequence[LeftOut], power: float = 1.0) -> float:
    """Share of runs in the range of the runs of all other units, its factors to a power."""
    held = []
    for unit in sorted({row.unit for row in rows}):
        low, high = measured_range(row for row in rows if row.unit != unit)
        own = [exp(-row.log_ratio) for row in rows if row.unit == unit]
        held += [low**power <= each <= high**power for each in own]
    return fmean(held)


def covering_power(rows: Sequence[LeftOut]) -> float:
    """The least power of the range's factors with which it holds `COVERED` of left-out runs.

    Runs of another unit lie further off than those that a range is made of. It is tried in steps of
    0.05 up to 4; of one unit nothing is known, and it is 1.
    """
    several = len({row.unit for row in rows}) > 1
    powers = [1 + step / 20 for step in range(61)]
    enough = (power for power in powers if not several or coverage(rows, power) >= COVERED)
    return next(enough, powers[-1])


def covering_range(rows: Sequence[LeftOut]) -> tuple[float, float]:
    """The range of all runs, wide enough that it would have held `COVERED` of left-out ones."""
    (low, high), power = measured_range(rows), covering_power(rows)
    return low**power, high**power


def kin_of(framework: str) -> tuple[str, ...]:
    """Frameworks whose runs count for a framework's range, itself among them."""
    return next((kin for kin in KIN if framework in kin), (framework,))


def pool_of(
    rows: Sequence[LeftOut], framework: str, generation: str, *, sparse: bool, mixes: bool
) -> Sequence[LeftOut]:
    """The runs that say how far off a framework's steps on a generation of GPUs are.

    The narrowest of: those of its kin on the generation, all on it, all of its kin. A pool has runs
    of three families of models at least, and these agree, so that its range needs no widening
    beyond `_WIDEST`. Empty where none does.
    """
    alike = [row for row in rows if (row.is_sparse, row.mixes) == (sparse, mixes)]
    kin = [row for row in alike if row.framework in kin_of(framework)]
    here = [row for row in alike if row.generation == generation]
    for pool in ([row for row in kin if row.generation == generation], here, kin):
        if len({row.unit[0] for row in pool}) >= _FEWEST and covering_power(pool) <= _WIDEST:
            return pool
    return []


def is_held(rows: Sequence[LeftOut]) -> Iterator[tuple[LeftOut, bool]]:
    """The runs of kinds with a range, and whether that of their pool without their unit holds them.

    The pool is chosen, and widened, with all of its runs.
    """
    pools: dict[tuple[object, ...], tuple[Sequence[LeftOut], float]] = {}
    for row in rows:
        key = kin_of(row.framework), row.generation, row.is_sparse, row.mixes
        if key not in pools:
            kind = {"sparse": row.is_sparse, "mixes": row.mixes}
            pool = pool_of(rows, row.framework, row.generation, **kind)
            pools[key] = pool, covering_power(pool) if pool else 1.0
        pool, power = pools[key]
        if pool:
            low, high = measured_range(each for each in pool if each.unit != row.unit)
            yield row, low**power <= exp(-row.log_ratio) <= high**power


def error_tables(
    rows: Sequence[LeftOut], as_shipped: Collection[str] = ()
) -> Mapping[str, list[dict[str, object]]]:
    """What runs say of predictions with each framework, as `[[error]]` tables of its file.

    Errors are those of one device and kind of model; the range, and how far it reaches, is that of
    its pool, also where only kin ran on the device. Runs of sources that are predicted `as_shipped`
    have no part in a range, and none of their own.
    """
    groups: dict[tuple[str, str, bool, bool], list[LeftOut]] = defaultdict(list)
    for row in rows:
        device = read_device(row.step.device).name
        for framework in {row.framework, ALSO_OF.get(row.framework, row.framework)}:
            groups[framework, device, row.is_sparse, row.mixes].append(row)
        for framework in kin_of(row.framework):
            if row.step.source not in as_shipped:
                groups.setdefault((framework, device, row.is_sparse, row.mixes), [])
    judged = [row for row in rows if row.step.source not in as_shipped]
    tables: dict[str, list[dict[str, object]]] = defaultdict(list)
    for (framework, device, sparse, mixes), alike in sorted(groups.items()):
        apart = alike and all(row.step.source in as_shipped for row in alike)
        generation = read_device(device).generation
        pool = pool_of(judged, framework, generation, sparse=sparse, mixes=mixes)
        names: dict[str, object] = {"device": device, "generation": generation, "experts": sparse}
        names |= {"mixes": True} if mixes else {}
        errors = _errors(alike) if alike else {}
        reach = _range(pool) if pool and not apart else {}
        if errors or reach:
            tables[framework].append({**names, **errors, **reach})
    return tables


def _errors(rows: Sequence[LeftOut]) -> dict[str, object]:
    errors = [abs(row.error) for row in rows]
    sources = sorted({row.step.source for row in rows})
    return {
        "mean": round(fmean(errors), 3),
        "median": round(float(np.median(errors)), 3),
        "ninety": round(float(np.quantile(errors, 0.9)), 3),
        "runs": len(rows),
        "source": ", ".join(sources),
    }


def _range(rows: Sequence[LeftOut]) -> dict[str, object]:
    low, high = covering_range(rows)
    plans = [row.step.plan for row in rows]
    return {
        "low": round(low, 3),
        "high": round(high, 3),
        "others": len({row.step.source for row in rows}),
        "most_npus": max(plan.npus for plan in plans),
        "most_sequence": max(plan.sequence for plan in plans),
        "most_cp": max(plan.cp for plan in plans),
    }
