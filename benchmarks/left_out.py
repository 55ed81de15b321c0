"""Errors of predictions whose constants were set without the source that is predicted."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, log1p
from statistics import fmean
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from stepsim.files.accelerators import read_device
from stepsim.files.model_steps import PublishedStep

ALSO_OF = MappingProxyType({"nemo-performance": "megatron-core"})
"""Frameworks whose runs count for another as well: NeMo's kernels and host are Megatron-Core's."""

COVERED = 0.8
"""Share of the runs of other sources that a range holds."""


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
    def log_ratio(self) -> float:
        """Logarithm of predicted over measured seconds."""
        return log1p(self.error)

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.step.error(self.predicted_s)


def measured_range(rows: Iterable[LeftOut]) -> tuple[float, float]:
    """Factors on a prediction between which `COVERED` of measured steps lie.

    Each run counts as one over the root of the runs of its source, so that a source of many runs
    counts for more than one of few, and not for all.
    """
    by_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_source[row.step.source].append(-row.log_ratio)
    logs = np.array([each for logs in by_source.values() for each in logs])
    weights = np.array([len(logs) ** -0.5 for logs in by_source.values() for _ in logs])
    order = np.argsort(logs)
    share = np.cumsum(weights[order]) - weights[order] / 2
    edges = np.array([(1 - COVERED) / 2, (1 + COVERED) / 2]) * weights.sum()
    low, high = np.interp(edges, share, logs[order])
    return exp(low), exp(high)


def coverage(rows: Sequence[LeftOut], power: float = 1.0) -> float:
    """Share of runs in the range of the runs of all other sources, its factors to a power."""
    held = []
    for source in sorted({row.step.source for row in rows}):
        low, high = measured_range(row for row in rows if row.step.source != source)
        own = [exp(-row.log_ratio) for row in rows if row.step.source == source]
        held += [low**power <= each <= high**power for each in own]
    return fmean(held)


def covering_range(rows: Sequence[LeftOut]) -> tuple[float, float]:
    """The range of all runs, wide enough that it would have held `COVERED` of left-out ones.

    Runs of a new source lie further off than those that a range is made of: its factors are taken
    to the least power, in steps of 0.05, with which the range of the others holds that share of the
    runs of each source in turn. With one source alone nothing is known, and the power is 1.
    """
    several = len({row.step.source for row in rows}) > 1
    powers = [1 + step / 20 for step in range(61)]
    enough = (power for power in powers if not several or coverage(rows, power) >= COVERED)
    power = next(enough, powers[-1])
    low, high = measured_range(rows)
    return low**power, high**power


def error_tables(
    rows: Sequence[LeftOut], as_shipped: Collection[str] = ()
) -> Mapping[str, list[dict[str, object]]]:
    """What runs say of predictions with each framework, as `[[error]]` tables of its file.

    Errors are those of one device and kind of model; the range, and how far it reaches, is that of
    all runs of the kind. Runs of sources that are predicted `as_shipped` have no part in a range,
    and none of their own.
    """
    groups: dict[tuple[str, str, bool, bool], list[LeftOut]] = defaultdict(list)
    for row in rows:
        for framework in {row.framework, ALSO_OF.get(row.framework, row.framework)}:
            device = read_device(row.step.device).name
            groups[framework, device, row.is_sparse, row.mixes].append(row)
    tables: dict[str, list[dict[str, object]]] = defaultdict(list)
    for (framework, device, sparse, mixes), alike in sorted(groups.items()):
        apart = [row.step.source in as_shipped for row in alike]
        kind = [
            row
            for row in rows
            if (row.is_sparse, row.mixes) == (sparse, mixes)
            and row.step.source not in as_shipped
            and not all(apart)
        ]
        names: dict[str, object] = {"device": device, "generation": read_device(device).generation}
        names |= {"experts": sparse} | ({"mixes": True} if mixes else {})
        reach = _range(kind) if kind else {}
        tables[framework].append({**names, **_errors(alike), **reach})
    return tables


def held_rows(rows: Iterable[LeftOut]) -> list[tuple[str | int, ...]]:
    """Rows of `frameworks/held.csv`: errors by framework, source, model, device and precision."""
    groups: dict[tuple[str | int, ...], list[float]] = defaultdict(list)
    for row in rows:
        step, device = row.step, read_device(row.step.device)
        names = " ".join(filter(None, (row.framework, ALSO_OF.get(row.framework))))
        machine = device.name, device.generation, step.plan.precision.value
        kind = int(row.is_sparse), int(row.mixes)
        model = step.model, *machine, *kind, step.architecture.parameters()
        groups[names, step.source, *model].append(abs(row.error))
    return [
        (*key, len(errors), f"{fmean(errors):.4f}", f"{max(errors):.4f}")
        for key, errors in sorted(groups.items())
    ]


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
