"""Plans that vendors published against what a search finds: in the space, fitting, how far behind.

    python benchmarks/published_plans.py ../shared/reference/steps/published_plans.csv --runs 3

prints the table of docs/guides/plan.md. Plans are priced on all GPUs of an H100 machine with the
settings of NVIDIA's performance recipes (`nemo-performance`); the best and the published one are
simulated.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepsim.explore.plan.asked import why_slower
from stepsim.explore.plan.search import (
    PlanJob,
    SearchedPlan,
    fitting_plans,
    search_plans,
    searched,
)
from stepsim.files.asked import read_inputs
from stepsim.step.plans import PlanSpace, make_space, plan_words
from stepsim.workload.plan import PlanTable

_NAMES = {
    "llama3-405b": "llama-3.1-405b",
    "llama3-70b": "llama-3-70b",
    "nemotron-340b": "nemotron-4-340b",
}
_DEGREES = {"tp": "tp", "cp": "cp", "pp": "pp", "chunks": "vpp", "microbatch_size": "mbs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlan:
    """A published plan, the search's question for it, and all plans priced; `place` is its own."""

    row: Mapping[str, str]
    space: PlanSpace
    priced: PlanTable
    place: int

    @property
    def behind(self) -> float:
        """How much slower its price is than the lowest, as a share."""
        return float(self.priced.seconds[self.place] / self.priced.seconds.min()) - 1

    def simulated(self, runs: int) -> tuple[SearchedPlan, SearchedPlan]:
        """The published plan and the best of a search, both simulated."""
        best = search_plans(self.space, runs=runs, memory_limit=1.0).plans[0]
        published = self.priced.plans[self.place]
        if published == best.plan:
            return best, best
        run = PlanJob(space=self.space).run(published)
        assert not isinstance(run, str)
        return searched(self.space, self.priced, self.place, run), best


def published_plans(path: Path) -> list[dict[str, str]]:
    """The rows of a table of published plans."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def find_published(row: Mapping[str, str]) -> PublishedPlan:
    """A published plan among all plans that fit; raises LookupError where it is not there."""
    asked: dict[str, object] = {
        "global_batch": int(row["gbs"]),
        "sequence": int(row["seq"]),
        "precision": row["precision"],
        "framework": "nemo-performance",
        "cuda_graph": row["cuda_graph"] == "1",
        "tp_comm_overlap": row["tp_overlap"] == "1",
        "dp_overlap": row["dp_overlap"] == "1",
    }
    job = read_inputs(_NAMES.get(row["model"], row["model"]), "hgx-h100", asked)
    space = make_space(job, (int(row["n_gpus"]),), fixed={})
    priced, _ = fitting_plans(space, 1.0)
    wanted = {name: int(row[column]) for name, column in _DEGREES.items()}
    for place, plan in enumerate(priced.plans):
        same = all(getattr(plan, name) == value for name, value in wanted.items())
        if same and plan.recompute == "none":
            return PublishedPlan(row=row, space=space, priced=priced, place=place)
    raise LookupError(f"{row['source']}, {row['model']}: not among the plans that fit")


def lines(path: Path, runs: int, *, small: bool = False) -> Iterator[str]:
    """A Markdown table: each published plan beside the best one found; `small` is the smallest."""
    yield "| plan | GPUs | published | memory | step | best found | memory | step | behind | why |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    rows = sorted(published_plans(path), key=lambda row: int(row["n_gpus"]) if small else 0)
    for row in rows[:1] if small else rows:
        found = find_published(row)
        published, best = found.simulated(runs)
        behind = published.step_ps / best.step_ps - 1
        cells = [
            f"{row['model']}, {row['source']}",
            row["n_gpus"],
            *_cells(published),
            *(_cells(best) if best is not published else ("the same", "", "")),
            f"{behind:.1%}",
            why_slower(published, best) if best is not published else "",
        ]
        yield f"| {' | '.join(cells)} |"


def _cells(found: SearchedPlan) -> tuple[str, str, str]:
    memory = f"{found.memory_bytes / 2**30:.1f} GiB"
    words = plan_words(found.plan).replace("|", "\\|")
    return words, memory, f"{found.step_ps / 1e12:.2f} s"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="plans of each search to simulate")
    parser.add_argument("--small", action="store_true", help="the plan of the fewest GPUs alone")
    arguments = parser.parse_args()
    for line in lines(arguments.table, arguments.runs, small=arguments.small):
        print(line, flush=True)


if __name__ == "__main__":
    main()
