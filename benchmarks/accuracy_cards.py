"""Print docs/card_accuracy.md: steps of model cards, and what the worst predictions are made of.

    python benchmarks/accuracy_cards.py ../shared/reference/steps/cards_dev.csv

Prints how many rows are answered; mean, median and largest error and the bias of runs whose layout
is known whole, by the kind of run, then by model and GPU; and of the worst runs what the prediction
is spent on. Constants were set on other rows: these errors are those of new models.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import StepsimError
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.runs.published import model_of
from stepsim.workload.model.held import counts_by_chunk, plan_places
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

KINDS = {
    "mb-card-perf": "tuned",
    "mb-summary": "tuned",
    "mb-card-pretrain": "pretrain",
    "mb-card-sft": "sft",
    "mb-card-lora": "lora",
}
"""What sources of cards run: recipes tuned for speed, real data, fine-tuning whole and by parts."""
WORST = 12
HEAD = """# Accuracy of model cards

Made by `python benchmarks/accuracy_cards.py ../shared/reference/steps/cards_dev.csv`.

Runs of Megatron-Bridge's verification cards and of its tables from 26.04 on, of nine models of
2025/26: {answered} of {rows} rows are answered, the others are of a model of unknown shape.
No constant was set on them, so these are errors of new models. Errors are predicted over measured,
minus 1.

- **tuned**: recipes made for speed. Each expert gets as many tokens.
- **pretrain**: real data, whose tokens do not reach experts evenly.
- **sft** and **lora**: packed samples of lengths that no card says.

Rows that a source leaves incomplete are answered, and not counted.
"""


class StepShares(Struct, frozen=True, kw_only=True):
    """What a step is spent on, in seconds of the mean rank.

    `compute` are kernels, `exchanged` is what exchanges inside layers show, `host` what launches
    take longer than both; `rest` is all else: bubble, slower ranks, gradients, optimizer.
    """

    compute: float
    exchanged: float
    host: float
    rest: float


def shares_of(model: StepModel, plan: Plan, step_s: float) -> StepShares:
    """What the step of a plan is spent on, which takes so many seconds."""
    columns = PlanTable([plan])
    parts = model.microbatch(columns)
    counts = counts_by_chunk(model.architecture, plan.layout, plan_places(plan))
    often = counts.sum(axis=(1, 2)) * plan.microbatches / plan.pp

    def spent(seconds: Iterable[Floats]) -> float:
        return sum(float(n * each[0]) for n, each in zip(often, seconds, strict=True))

    whole = spent(part.total for part in parts)
    sent = spent(part.exchanged for part in parts)
    busy = spent(part.forward + part.backward for part in parts)
    return StepShares(compute=busy - sent, exchanged=sent, host=whole - busy, rest=step_s - whole)


class CardRun(Struct, frozen=True, kw_only=True):
    """A run of a card, its predicted seconds, and what these are spent on."""

    step: PublishedStep
    predicted_s: float
    shares: StepShares

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.step.error(self.predicted_s)

    @property
    def kind(self) -> str:
        """What kind of run it is."""
        return KINDS.get(self.step.source, self.step.source)


def answered(path: Path) -> tuple[list[CardRun], list[str]]:
    """All rows that are answered, complete or not, and a line for each that is not."""
    steps, refused = read_published_steps(path)
    found, lines = [], list(refused)
    for step in steps:
        try:
            model = model_of(step)
            seconds = float(model.seconds([step.plan])[0])
            shares = shares_of(model, step.plan, seconds)
        except StepsimError as error:
            lines.append(f"{step.name}: {error}")
            continue
        found.append(CardRun(step=step, predicted_s=seconds, shares=shares))
    return found, lines


def complete(runs: Iterable[CardRun]) -> list[CardRun]:
    """The runs whose layout is known whole."""
    return [run for run in runs if run.step.is_complete]


def tables(runs: Sequence[CardRun]) -> Iterator[str]:
    """Errors of complete runs by kind, by source, by model and GPU; the worst and their parts."""
    judged = complete(runs)
    yield from errors("kind", judged, lambda run: (run.kind,))
    yield ""
    yield from errors("source", judged, lambda run: (run.step.source,))
    yield ""
    yield from errors(
        "model | GPU | kind", judged, lambda run: (run.step.model, run.step.device, run.kind)
    )
    yield ""
    yield from worst(judged)


def errors(
    title: str, runs: Sequence[CardRun], key: Callable[[CardRun], tuple[str, ...]]
) -> Iterator[str]:
    """A Markdown table of errors of groups of runs."""
    yield f"| {title} | runs | mean | median | largest | bias |"
    yield "|---" * (title.count("|") + 6) + "|"
    groups: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run.error)
    for names, each in groups.items():
        sizes = [abs(error) for error in each]
        shares = (f"{x:.1%}" for x in (fmean(sizes), median(sizes), max(sizes)))
        yield f"| {' | '.join(names)} | {len(each)} | {' | '.join(shares)} | {fmean(each):+.1%} |"


def worst(runs: Sequence[CardRun]) -> Iterator[str]:
    """The runs with the largest errors: seconds measured and predicted, and its parts."""
    yield "| run | kind | model | GPU | format | measured, s | predicted, s | error |"
    yield "|---|---|---|---|---|---|---|---|"
    for run in sorted(runs, key=lambda run: -abs(run.error))[:WORST]:
        step, parts = run.step, run.shares
        spent = {
            "kernels": parts.compute,
            "exchanges": parts.exchanged,
            "host": parts.host,
            "rest": parts.rest,
        }
        cells = [
            *(step.name, run.kind, step.model, step.device, step.plan.precision.value),
            f"{step.measured_s:.2f}",
            f"{run.predicted_s:.2f}: " + ", ".join(f"{n} {s:.2f}" for n, s in spent.items()),
            f"{run.error:+.0%}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    runs, refused = answered(Path(sys.argv[-1]))
    print(HEAD.format(answered=len(runs), rows=len(runs) + len(refused)))
    print("\n".join(tables(runs)))


if __name__ == "__main__":
    main()
