"""Protocols of a machine's communication library, and how well they meet measurements."""

from collections.abc import Iterator
from math import isfinite

from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.network.topology.library import Library, Protocol
from stepsim.show.tables.model import COUNT, SHARE, TEXT, Shown, Table


def library_shown(library: Library) -> Iterator[Shown]:
    """A table of protocols and one of accuracies; a sentence where nothing was measured."""
    if library.protocols:
        yield _protocols(library)
    if library.accuracy:
        yield _accuracies(library)
    elif library.protocols:
        yield "accuracy: its times were not compared with measured ones"


def _protocols(library: Library) -> Table:
    links = list(dict.fromkeys(n for each in library.protocols for n, _ in each.steps_ps))
    columns = dict.fromkeys(
        ("protocol", "for", "nodes", "launch", *(f"step {n}" for n in links)), TEXT
    )
    columns |= dict.fromkeys((*(f"rate {n}" for n in links), "copy"), TEXT)
    rows = tuple(_protocol_row(each, links) for each in library.protocols)
    caption = "protocols: on top of launch and endpoint latency; shares of the links' payload"
    return Table(caption=caption, columns=columns, rows=rows)


def _protocol_row(protocol: Protocol, links: list[str]) -> tuple[str, ...]:
    steps, rates = dict(protocol.steps_ps), dict(protocol.rates)
    copy = protocol.copy_bandwidth
    return (
        protocol.name,
        ", ".join((*protocol.algorithms, *protocol.kinds)) or "all",
        _nodes(protocol),
        format_time_ps(protocol.launch_ps),
        *(format_time_ps(steps.get(link, 0)) for link in links),
        *(f"{rates.get(link, 1.0):.1%}" for link in links),
        format_bandwidth(copy) if isfinite(copy) else "-",
    )


def _nodes(protocol: Protocol) -> str:
    if protocol.most_nodes:
        return f"{protocol.least_nodes} to {protocol.most_nodes}"
    return f"from {protocol.least_nodes}" if protocol.least_nodes > 1 else "any"


def _accuracies(library: Library) -> Table:
    columns = {
        "collective": TEXT,
        "nodes": COUNT,
        "ranks": COUNT,
        "sizes": TEXT,
        "mean": SHARE,
        "largest": SHARE,
        "times": COUNT,
        "": TEXT,
    }
    rows = tuple(
        (
            each.kind,
            each.nodes,
            each.most_ranks,
            f"{format_size_bytes(each.first_bytes)} to {format_size_bytes(each.last_bytes)}",
            each.mean,
            each.largest,
            each.samples,
            "" if each.good else "poor",
        )
        for each in library.accuracy
    )
    caption = "off measured times (to so many nodes and ranks)"
    return Table(caption=caption, columns=columns, rows=rows)
