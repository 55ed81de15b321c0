"""Compare what-if numbers of a profile with the published ones of the study of stragglers.

Usage: python benchmarks/stragglers.py FOLDER/reference/profiles/ndtimeline
For every trace-NAME.parquet with its result-, ms- and mw-NAME.json: largest differences.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sizes import arguments

import stepsim
from stepsim.base.units import PS_PER_S
from stepsim.explain.stragglers import Stragglers


def differences(found: Stragglers, told: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """What is compared, the published number or their count, and the largest difference."""
    result = told["result"]
    for name, key, times in (
        ("measured step, s", "step_t_base", found.measured_ps),
        ("without host delays, s", "step_t_nodelay", found.prompt_ps),
        ("ideal step, s", "step_t_noblk", found.ideal_ps),
    ):
        apart = np.abs(times / PS_PER_S - np.array([*result[key].values()]))
        yield name, f"{len(apart)} steps", f"{apart.max():.7f}"
    by: dict[str, dict[Any, float]] = {
        "stage": dict(enumerate(found.by_stage)),
        "dp_rank": dict(enumerate(found.by_replica)),
        "optype": found.by_kind,
    }
    for name, mine in by.items():
        published = result[f"blocking_decompose_by_{name}"]
        apart = np.array([abs(mine[k] - published[str(k)]) for k in mine])
        yield f"slowdowns by {name}", str(len(apart)), f"{apart.max():.7f}"
    for name, value, number in (
        ("slowdown", found.slowdown, result["blocking_slowdown"]),
        ("host slowdown", found.host_slowdown, result["launch_slowdown"]),
        ("share of the last stage", found.last_stage_share, told["ms"]["Ms"]),
        ("share of the slowest workers", found.slowest_share, told["mw"]["Mw"]),
    ):
        yield name, f"{number:.4f}", f"{abs(value - number):.7f}"
    errors = np.abs(found.errors)
    yield "replay of every step", f"{errors.mean():.5%} mean", f"{errors.max():.5%} largest"


def main() -> None:
    """Print a table per job."""
    folder = Path(arguments()[0])
    for trace in sorted(folder.glob("trace-*.parquet")):
        job = trace.stem.removeprefix("trace-")
        told = {
            name: json.loads((folder / f"{name}-{job}.json").read_text())
            for name in ("result", "ms", "mw")
        }
        print(f"| {job} | published | largest difference |")
        print("|---|---|---|")
        for cells in differences(stepsim.stragglers(trace), told):
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
