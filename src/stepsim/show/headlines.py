"""The few numbers of a step that are looked for first: pages and notebooks begin with them."""

from collections.abc import Iterator

from msgspec import Struct

from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.explain.report import Report
from stepsim.explain.throughput import Throughput
from stepsim.show.tables.model import share_of


class Headline(Struct, frozen=True, kw_only=True):
    """A number that answers: its name, its value in words, and what is said beside it.

    `share` draws a bar of that length, where 1 is all there is; a `wrong` value cannot be, such as
    more memory than a device has.
    """

    name: str
    value: str
    beside: tuple[str, ...] = ()
    share: float | None = None
    wrong: bool = False

    @property
    def text(self) -> str:
        """All of it in a line, e.g. `memory 61 GiB (of 80 GiB, 76%)`."""
        beside = f" ({', '.join(self.beside)})" if self.beside else ""
        return f"{self.name} {self.value}{beside}"


def headlines(result: Report, measured_ps: int | None = None) -> tuple[Headline, ...]:
    """How long a step takes, what that is worth, and whether it fits.

    `measured_ps` is the step that it is the replay of.
    """
    rates = result.throughput
    known = _worth(result, rates) if rates else _shares(result)
    return (_step(result, rates), *_measured(result, measured_ps), *known)


def unit_word(result: Report) -> str:
    """What a processor of a step's job is called: GPU where its device is known, else NPU."""
    return "GPU" if result.throughput else "NPU"


def exposed_ps(result: Report) -> int:
    """Communication that ranks wait for, mean over ranks, in ps."""
    return sum(t for name, t in result.breakdown_ps.items() if name.startswith("exposed"))


def _step(result: Report, rates: Throughput | None) -> Headline:
    """The step time, with the range in which measured steps of such models lie."""
    beside: tuple[str, ...] = ()
    if rates and rates.low_s is not None and rates.high_s is not None:
        low, high = (format_time_ps(round(s * PS_PER_S)) for s in (rates.low_s, rates.high_s))
        beside = (f"{low} to {high}", "80 % of such runs")
    if rates and _is_too_much(rates):
        beside = ("if it fitted", *beside[:1])
    return Headline(name="step time", value=format_time_ps(result.step_time_ps), beside=beside)


def _measured(result: Report, measured_ps: int | None) -> Iterator[Headline]:
    """The step that was measured, and how far off the simulated one is."""
    if measured_ps:
        error = f"error {result.step_time_ps / measured_ps - 1:+.2%}"
        yield Headline(name="measured step", value=format_time_ps(measured_ps), beside=(error,))


def _worth(result: Report, rates: Throughput) -> Iterator[Headline]:
    """Tokens, MFU and memory of a model's step."""
    held, capacity, wrong = rates.memory_bytes, rates.capacity_bytes, _is_too_much(rates)
    per, peak = f"per {unit_word(result)}", f"of {rates.device}'s peak"
    yield Headline(name="tokens/s", value=_rate(rates.tokens_per_s), beside=(per,))
    yield Headline(name="MFU", value=f"{rates.mfu:.1%}", beside=(peak,))
    if held is not None and capacity:
        said = (f"of {format_size_bytes(capacity)}", f"{held / capacity:.0%}")
        yield Headline(
            name="memory",
            value=format_size_bytes(held),
            beside=("does not fit", *said) if wrong else said,
            share=held / capacity,
            wrong=wrong,
        )


def _is_too_much(rates: Throughput) -> bool:
    """Whether a rank holds more than its device has, as far as that is known."""
    held, capacity = rates.memory_bytes, rates.capacity_bytes
    return bool(held and capacity and held > capacity)


def _shares(result: Report) -> Iterator[Headline]:
    """Where the step of a workload goes of which no model says what it is worth."""
    step = result.step_time_ps
    idle = result.bubble_fraction
    yield Headline(name="compute", value=_share(result.breakdown_ps.get("compute", 0), step))
    yield Headline(name="exposed communication", value=_share(exposed_ps(result), step))
    if result.plan["pp"] > 1:
        yield Headline(name="pipeline bubble", value=f"{idle:.1%}")


def _share(time_ps: int, step_ps: int) -> str:
    return f"{share_of(time_ps, step_ps):.1%}" if step_ps else "-"


def _rate(value: float) -> str:
    """A rate with thousands apart, and at least four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
