"""`stepsim collective`: one collective by itself, on the network it would have to itself."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.cli.declared import flag
from stepsim.cli.options import TOPOLOGIES, StyleOption, takes
from stepsim.cli.terminal import CsvOption, JsonOption, figure, show
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.network.one_collective import CollectiveDocument

_EVERY = "all"


@takes()
def collective_command(
    kind: str = flag(
        "all_reduce, all_gather, all_to_all, ...",
        default=...,
        offers="stepsim.base.axes:CollectiveKind",
    ),
    size: str = flag("Size, e.g. 64MiB, or a range such as 8..1GiB:x2.", default=...),
    topology: str | None = flag(
        "Shipped topology or TOML file.", "--topology", "-t", shown="hgx-h100", offers=TOPOLOGIES
    ),
    ranks: str | None = flag("Ranks, e.g. 0-7,16.", shown="all NPUs of the topology"),
    algorithm: tuple[str, ...] = flag(
        "auto, names separated by commas, hierarchical:ring,direct, or all. Repeatable."
    ),
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: Path | None = figure("Draw time and busbw"),
    style: StyleOption = FigureStyle.SCREEN,
) -> None:
    """Price one collective: time, algbw, busbw and links.

    The bandwidths are those of nccl-tests. The collective has the network to itself.
    """
    from stepsim.views.collective import collective_shown

    priced = _priced(kind, size, topology, ranks, algorithm or ["auto"])
    if plot:
        from stepsim.views.collective import plot_collective

        plot_collective(priced, plot, style=style)
    show(json, priced.to_json, collective_shown(priced), csv)


def _priced(
    kind: str, size: str, topology: str | None, ranks: str | None, algorithms: Sequence[str]
) -> "CollectiveDocument":
    from stepsim.base.axes import CollectiveKind
    from stepsim.base.errors import member
    from stepsim.files.load import topology_of
    from stepsim.files.reading import DEFAULT_TOPOLOGY
    from stepsim.network.collectives import parse_algorithm
    from stepsim.network.one_collective import (
        CollectiveDocument,
        parse_ranks,
        parse_sizes,
        probe_algorithms,
        probe_collective,
    )

    known = member(CollectiveKind, kind, "kind")
    sizes = parse_sizes(size)
    chosen = parse_ranks(ranks) if ranks else None
    network = topology_of(topology or DEFAULT_TOPOLOGY, npus=max(chosen) + 1 if chosen else None)
    chosen = chosen or tuple(range(network.npus))
    names = list(_split(algorithms))
    if _EVERY in names:
        names = ["auto", *probe_algorithms(network, known, chosen)]
    return CollectiveDocument(
        topology=network.name,
        kind=known,
        ranks=chosen,
        algorithms=tuple(
            probe_collective(network, known, sizes, chosen, parse_algorithm(name))
            for name in dict.fromkeys(names)
        ),
    )


def _split(texts: Iterable[str]) -> Iterable[str]:
    """Names in comma lists; what follows a colon are the levels of one algorithm."""
    for text in texts:
        plain, colon, levels = text.partition(":")
        names = [name.strip() for name in plain.split(",")]
        yield from names[:-1]
        yield names[-1] + colon + levels
