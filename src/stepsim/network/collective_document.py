"""Prices of one collective as a document: what `stepsim collective --json` writes."""

from collections.abc import Sequence
from typing import Self

from stepsim.base.documents import Document, Entry
from stepsim.network.one_collective import Probe, ProbeRow


class _AlgorithmEntry(Entry, frozen=True, kw_only=True):
    """Prices with the algorithm that was asked for."""

    algorithm: str
    rows: tuple[ProbeRow, ...]


class CollectiveDocument(Document, frozen=True, kw_only=True):
    """`stepsim collective --json`: one collective; algbw and busbw as nccl-tests count them."""

    topology: str
    kind: str
    ranks: tuple[int, ...]
    algorithms: tuple[_AlgorithmEntry, ...]

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Self:
        """The document of probes of one collective, each with an algorithm."""
        first = probes[0]
        algorithms = (
            _AlgorithmEntry(algorithm=probe.algorithm, rows=probe.rows) for probe in probes
        )
        return cls(
            topology=first.topology,
            kind=first.kind,
            ranks=first.ranks,
            algorithms=tuple(algorithms),
        )
