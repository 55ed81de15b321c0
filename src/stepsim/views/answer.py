"""The answer of a step in three lines: what was simulated, how long it takes, where time goes."""

from collections import Counter
from collections.abc import Iterator

from stepsim.base.axes import Part, part_label
from stepsim.base.units import format_time_ps, npu_word
from stepsim.documents.table import SHARE, Answer, share_of
from stepsim.explain.report import Report, exposed_ps
from stepsim.views.step import IDLE_KEYS, bubble_words, idle_ps
from stepsim.views.words import degree_words, memory_words, range_words

_BETWEEN = "   "
# Parts that are a smaller share of the step stand in the tables alone.
_SMALLEST = 0.005
# A loss from this share of the step on has its own advice.
_LARGE = 0.1


def answer_of(result: Report, measured_ps: int | None = None) -> Answer:
    """The answer of a step; `measured_ps` is the step that a replay is compared with."""
    rates = result.throughput
    return Answer(
        job=job_line(result),
        time=_BETWEEN.join(_time(result, measured_ps)),
        parts=_BETWEEN.join(_parts(result)),
        fits=rates is None or rates.fits,
        advice=_advice(result),
    )


def job_line(result: Report, *, schedule: bool = True) -> str:
    """What was simulated, in a line, with its `schedule` or without."""
    return _BETWEEN.join(job_words(result, schedule=schedule))


def job_words(result: Report, *, schedule: bool = True) -> list[str]:
    """The workload on its ranks and their network, the degrees, the size of a step."""
    rates = result.throughput
    who = rates.device if rates else npu_word(result.device, result.npus)
    said = [
        f"{result.workload} on {result.npus:,} {who} ({result.topology})",
        degree_words(result.plan, result.ep_layout, between="  "),
    ]
    if schedule and result.plan["pp"] > 1:
        said.append(result.schedule)
    if rates and rates.sequence:
        said.append(f"mbs {rates.microbatch_size}")
        said.append(f"batch {rates.global_batch:,} x {rates.sequence:,} tokens")
    else:
        said.append(f"{result.microbatches:,} microbatch{'es' * (result.microbatches != 1)}")
    return said


def _time(result: Report, measured_ps: int | None) -> Iterator[str]:
    """The step time with its range, tokens, MFU and memory, as far as these are known.

    Of a replay, how far it is from the run.
    """
    rates = result.throughput
    step = f"{format_time_ps(result.step_time_ps)} per step"
    if rates is None:
        yield step
    else:
        lies, tokens = range_words(rates) or "range unknown", rates.tokens_per_s
        yield f"{step}{'' if rates.fits else ', if it fitted'} ({lies})"
        rate = f"{tokens:,.0f}" if tokens >= 1000 else f"{tokens:.4g}"
        yield f"{rate} tokens/s per {npu_word(result.device)}"
        yield f"MFU {rates.mfu:.1%}"
        if held := memory_words(rates.memory_bytes, rates.capacity_bytes):
            yield f"memory {held}"
    if measured_ps:
        error = result.step_time_ps / measured_ps - 1
        yield f"measured {format_time_ps(measured_ps)} ({error:+.2%})"


def conclusion(result: Report) -> str:
    """A step in a sentence: how long it takes, and the most of it that is no compute."""
    lost = (each for each in _shares(result) if each[0] != Part.COMPUTE.label)
    name, share = next(lost, (Part.COMPUTE.label, 1.0))
    return f"{format_time_ps(result.step_time_ps)} per step, {SHARE.text(share)} of it {name}"


def _shares(result: Report) -> list[tuple[str, float]]:
    """The parts of the step by their names, the largest first, but for the smallest."""
    parts = {key: time for key, time in result.breakdown_ps.items() if key not in IDLE_KEYS}
    parts["idle"] = idle_ps(result.breakdown_ps)
    every = (
        (part_label(key), share_of(time, result.step_time_ps))
        for key, time in Counter(parts).most_common()
    )
    return [(name, share) for name, share in every if share >= _SMALLEST]


def _parts(result: Report) -> Iterator[str]:
    """The parts of the step, the largest first, and what the bubble is due to."""
    yield from (f"{name} {SHARE.text(share)}" for name, share in _shares(result))
    if result.plan["pp"] > 1:
        yield bubble_words(result)


def _advice(result: Report) -> str:
    """What a reader may look at next, by what is lost most."""
    rates, step = result.throughput, result.step_time_ps
    options = ["--full (all tables)", "--report FILE (a page)"]
    exposed = exposed_ps(result.breakdown_ps)
    if rates and not rates.fits:
        options.insert(0, "stepsim plan (plans that fit)")
    elif result.plan["pp"] > 1 and result.bubble_fraction >= _LARGE:
        options.insert(0, "stepsim compare (other schedules)")
    elif share_of(exposed, step) >= _LARGE:
        options.insert(0, "--show communication (which calls)")
    elif rates:
        options.insert(0, "stepsim plan (other degrees)")
    return f"next: {', '.join(options)}"
