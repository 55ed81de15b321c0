"""What a page shows of a step: numbers that can be compared, memory, tables; all plain data."""

from collections.abc import Mapping

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.documents.table import TEXT, Cell, Column, Ordered, Sheet, Table, share_of
from stepsim.explain.report import Report
from stepsim.views.answer import job_words
from stepsim.views.step import step_tables
from stepsim.views.words import range_words
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.memory import TIGHT_SHARE

Plain = dict[str, object]
"""What JSON holds."""

_TIGHT = "close to full: retries of the allocator cost published runs 20 to 30 % there"
_OVER = "does not fit: the job would end for want of memory"


def answer_facts(
    step_ps: int, bubble: float, pipelines: int, rates: Throughput | None
) -> list[Plain]:
    """The few numbers that are looked for first; `pipelines` are microbatches of all pipelines."""
    step = time_fact("step time", step_ps)
    if rates is None:
        rate = share_of(pipelines * PS_PER_S, step_ps)
        throughput = _fact("throughput", f"{rate:,.4g} microbatches/s", rate, "more")
        return [step, throughput, _share("pipeline bubble", bubble, "less")]
    tokens = rates.tokens_per_s
    return [
        {**step, "range": range_words(rates), "range_of": rates.range_of},
        _fact("tokens/s per GPU", f"{tokens:,.0f}", tokens, "more"),
        _share("MFU", rates.mfu, "more") | ({} if rates.fits else {"note": "if it fitted"}),
    ]


def time_fact(name: str, time_ps: int) -> Plain:
    """A time that had better be short."""
    return _fact(name, format_time_ps(time_ps), time_ps, "less")


def _fact(name: str, text: str, value: float, better: str) -> Plain:
    """A number in words, its plain `value`, and whether `less` or `more` is good.

    A `note` says more in words. A `share` is between 0 and 1, so that two of them differ by points.
    """
    return {"name": name, "text": text, "value": value, "better": better, "share": False}


def _share(name: str, value: float, better: str) -> Plain:
    return {**_fact(name, f"{value:.1%}", value, better), "share": True}


def memory_shown(stage: int, parts: Mapping[str, int], capacity_bytes: int | None) -> Plain | None:
    """What the fullest rank holds, of what it has and by what it is for, in bytes.

    `full` is its share of the memory, `level` that in words, `words` what it means.
    """
    if not capacity_bytes:
        return None
    held = sum(parts.values())
    full = held / capacity_bytes
    words = _OVER if full > 1 else _TIGHT if full >= TIGHT_SHARE else ""
    return {
        **_fact("memory of the fullest GPU", format_size_bytes(held), held, "less"),
        "note": f"of {format_size_bytes(capacity_bytes)}",
        "full": full,
        "level": ": ".join(filter(None, (f"{full:.0%}", words.partition(":")[0]))),
        "words": words,
        "stage": stage,
        "parts": [(name, size, format_size_bytes(size)) for name, size in parts.items() if size],
    }


def document_shown(found: Report) -> Plain:
    """All that a step's document says."""
    return {
        "job": job_words(found),
        "step_ps": found.step_time_ps,
        "facts": answer_facts(
            found.step_time_ps,
            found.bubble_fraction,
            found.microbatches * found.plan["dp"],
            found.throughput,
        ),
        "breakdown": dict(found.breakdown_ps),
        "memory": _document_memory(found),
        "tables": plain_tables(step_tables(found).values()),
        "warnings": list(found.said),
    }


def _document_memory(found: Report) -> Plain | None:
    stages = [stage for stage in found.stages if stage.memory and len(stage.memory.parts) > 1]
    if not stages or found.throughput is None:
        return None
    fullest = max(stages, key=lambda stage: stage.memory.total_bytes if stage.memory else 0)
    assert fullest.memory
    return memory_shown(fullest.stage, fullest.memory.parts, found.throughput.capacity_bytes)


def plain_tables(shown: Sheet) -> list[Plain]:
    """Tables that have rows, and behind them names with values as one of settings, as texts."""
    settings = Table(columns={"setting": TEXT, "value": TEXT}, rows=(), caption="settings")
    tables = (
        each if isinstance(each, Table) else replace(settings, rows=each)
        for each in sorted(shown, key=lambda each: isinstance(each, tuple))
        if not isinstance(each, str)
    )
    return [plain_table(each) for each in tables if each.rows]


def plain_table(table: Table) -> Plain:
    """A table as texts; a number is a text and what sorts it, a bar its pieces."""
    kinds = list(table.columns.values())
    return {
        "caption": table.caption,
        "columns": [{"name": name, "number": kind.number} for name, kind in table.columns.items()],
        "rows": [list(map(_cell, row, kinds)) for row in table.rows],
    }


def _cell(value: Cell, column: Column) -> object:
    if column.bar and value:
        return value
    order = value.order if isinstance(value, Ordered) else value
    text = column.text(value)
    return (text, order) if isinstance(order, int | float) else text
