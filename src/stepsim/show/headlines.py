"""The few numbers of a step that are looked for first: pages and notebooks begin with them."""

from collections.abc import Iterator

from stepsim.base.structs import Names, Noun
from stepsim.base.units import format_size_bytes, format_time_ps, npu_word
from stepsim.explain.report import Report, exposed_ps
from stepsim.show.tables.model import range_words, rate_words, share_of
from stepsim.workload.model.evidence import Throughput


class Headline(Noun):
    """A number that answers: its name, its value in words, and what is said beside it.

    `share` draws a bar of that length, where 1 is all there is; a `wrong` value cannot be, such as
    more memory than a device has.
    """

    name: str
    value: str
    beside: Names = ()
    wrong: bool = False

    @property
    def text(self) -> str:
        """All of it in a line, e.g. `memory 61 GiB (of 80 GiB, 76%)`."""
        beside = f" ({', '.join(self.beside)})" if self.beside else ""
        return f"{self.name} {self.value}{beside}"


def headlines(result: Report) -> tuple[Headline, ...]:
    """How long a step takes, what that is worth, and whether it fits.

    `measured_ps` is the step that it is the replay of.
    """
    rates = result.throughput
    known = _worth(result, rates) if rates else _shares(result)
    return (_step(result, rates), *known)


def _step(result: Report, rates: Throughput | None) -> Headline:
    """The step time, with the range in which measured steps of such models lie."""
    lies = range_words(rates) if rates else ""
    beside = (lies, "80 % of such runs") if lies else ()
    if rates and not rates.fits:
        beside = ("if it fitted", *beside[:1])
    return Headline(name="step time", value=format_time_ps(result.step_time_ps), beside=beside)


def _worth(result: Report, rates: Throughput) -> Iterator[Headline]:
    """Tokens, MFU and memory of a model's step."""
    held, capacity, wrong = rates.memory_bytes, rates.capacity_bytes, not rates.fits
    per, peak = f"per {npu_word(result.device)}", f"of {rates.device}'s peak"
    yield Headline(name="tokens/s", value=rate_words(rates.tokens_per_s), beside=(per,))
    yield Headline(name="MFU", value=f"{rates.mfu:.1%}", beside=(peak,))
    if held is not None and capacity:
        said = (f"of {format_size_bytes(capacity)}", f"{held / capacity:.0%}")
        yield Headline(
            name="memory",
            value=format_size_bytes(held),
            beside=("does not fit", *said) if wrong else said,
            wrong=wrong,
        )


def _shares(result: Report) -> Iterator[Headline]:
    """Where the step of a workload goes of which no model says what it is worth."""
    step = result.step_time_ps
    idle = result.bubble_fraction
    yield Headline(name="compute", value=_share(result.breakdown_ps.get("compute", 0), step))
    exposed = exposed_ps(result.breakdown_ps)
    yield Headline(name="exposed communication", value=_share(exposed, step))
    if result.plan["pp"] > 1:
        yield Headline(name="pipeline bubble", value=f"{idle:.1%}")


def _share(time_ps: int, step_ps: int) -> str:
    return f"{share_of(time_ps, step_ps):.1%}" if step_ps else "-"
