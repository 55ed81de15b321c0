"""Prices of one collective as a document: what `stepsim collective --json` writes."""

from collections.abc import Sequence
from typing import Self

from stepsim.base.documents import Document, Entry
from stepsim.base.fields import Bytes, BytesPerSecond, Picoseconds, finite
from stepsim.network.one_collective import LinkTraffic, Probe, ProbeRow


class _SizeEntry(Entry, frozen=True, kw_only=True):
    """A size; `latency_ps` is what infinitely fast links would leave, `algorithm` the one used.

    algbw and busbw are null where no time passes.
    """

    size_bytes: Bytes
    time_ps: Picoseconds
    latency_ps: Picoseconds
    algbw: BytesPerSecond | None
    busbw: BytesPerSecond | None
    algorithm: str
    links: tuple[LinkTraffic, ...]

    @classmethod
    def of(cls, row: ProbeRow) -> Self:
        """The entry of a size."""
        return cls.taken_from(row, algbw=finite(row.algbw), busbw=finite(row.busbw))


class _AlgorithmEntry(Entry, frozen=True, kw_only=True):
    """Prices with the algorithm that was asked for."""

    algorithm: str
    rows: tuple[_SizeEntry, ...]


class CollectiveDocument(Document, frozen=True, kw_only=True):
    """`stepsim collective --json`: one collective; algbw and busbw as nccl-tests count them."""

    topology: str
    kind: str
    ranks: tuple[int, ...]
    algorithms: tuple[_AlgorithmEntry, ...]

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Self:
        """The document of probes of one collective, each with an algorithm."""
        found = [
            _AlgorithmEntry.taken_from(probe, rows=[_SizeEntry.of(row) for row in probe.rows])
            for probe in probes
        ]
        return cls.taken_from(probes[0], algorithms=found)
