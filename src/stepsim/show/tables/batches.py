"""Tables of real batches: steps by packer, the best first said."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from stepsim.base.units import format_time_ps
from stepsim.explore.batches.draws import BatchSteps, BatchStudy
from stepsim.explore.batches.sweeps import BatchSweepDocument
from stepsim.show.tables.model import (
    ERROR,
    TIME,
    Shown,
    memory_words,
    paths,
    settings_words,
    table_of,
)
from stepsim.show.tables.studies import first_failure, sampled_table

_PARTS = "parts_ps.work, parts_ps.padding, parts_ps.waiting"
_PERCENTILES = {
    f"p{percent}": TIME.of(partial(BatchSteps.percentile_ps, percent=percent))
    for percent in (50, 90, 99)
}


def batches_shown(study: BatchStudy) -> Iterator[Shown]:
    """What each packer makes of the same documents: the answer, then a row for each."""
    best, first = study.best, study.packed[0]
    ranked = sorted(study.packed, key=lambda steps: -steps.tokens_per_s)
    times = best.tokens_per_s / first.tokens_per_s
    over = "" if best is first else f", {times:.2f} times {first.packer}"
    yield (
        f"{format_time_ps(round(best.mean_ps))} per step with packer {best.packer} "
        f"({format_time_ps(round(best.percentile_ps(90)))} in one of ten), "
        f"{best.tokens_per_s:,.0f} tokens/s net of padding{over}"
    )
    yield (
        f"{best.waiting:.1%} of it is waiting for the longest microbatches; a step of full "
        f"sequences, each one document, takes {format_time_ps(study.planned_ps)}"
    )
    yield (
        f"memory {memory_words(best.memory_bytes, study.capacity_bytes)}, with the largest "
        f"microbatch, {best.fullest:.2f} of a full one"
    )
    yield table_of(
        f"{len(first.step_time_ps)} steps of documents from {study.source}, seed {study.seed}",
        ranked,
        paths(
            "packer, mean step = mean_ps, p50, p90, p99, waiting, padding, fullest:.2f, "
            "tokens/s = tokens_per_s:,.0f, gain",
            {
                **_PERCENTILES,
                "gain": ERROR.of(lambda steps: steps.tokens_per_s / first.tokens_per_s - 1),
            },
        ),
    )
    parts = paths(f"packer, {_PARTS}, step = mean_ps")
    yield table_of("where the mean step goes", ranked, parts)
    yield (
        "waiting: of the steps' time, against the same steps with equal microbatches; fullest: "
        f"tokens of the largest microbatch over a full one; gain: in tokens/s over {first.packer}"
    )
    yield from _without_room(study)


def _without_room(study: BatchStudy) -> Iterator[str]:
    """A line for every packer whose largest microbatch does not fit."""
    for steps in study.packed:
        if steps.memory_bytes > study.capacity_bytes:
            held = memory_words(steps.memory_bytes, study.capacity_bytes)
            yield (
                f"memory: packer {steps.packer} has a microbatch of {steps.fullest:.2f} times the "
                f"tokens of a full one, with which a rank holds {held}"
            )


def batch_sweep_shown(found: BatchSweepDocument) -> Iterator[Shown]:
    """The scenario with most tokens, and a row for each; why the first failure failed."""
    ran: list[Any] = [each for each in found.scenarios if not each.error]
    best = max(ran, key=lambda each: each.tokens_per_s)
    yield (
        f"{settings_words(best.settings)}: {best.tokens_per_s:,.0f} tokens/s net of padding, "
        f"{format_time_ps(best.mean_ps)} per step, {best.waiting_ps / best.mean_ps:.1%} of it "
        "waiting"
    )
    columns = paths(
        "mean step = mean_ps, p90_ps, work_ps, padding_ps, waiting_ps, tokens/s = tokens_per_s:,.0f"
    )
    yield sampled_table(found, f"{found.steps} steps each, seed {found.seed}", columns)
    yield from first_failure(found)
