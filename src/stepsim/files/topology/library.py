"""Protocols of a machine's library in a topology file: `[[protocol]]` and `[[accuracy]]`."""

from math import isfinite

from stepsim.base.errors import TopologyError, bad_value
from stepsim.base.units import parse_bandwidth, parse_size_bytes, parse_time_ps
from stepsim.files.topology.library_tables import COLLECTIVE_KINDS, AccuracyTable, ProtocolTable
from stepsim.files.topology.parts import algorithm_names, quantity
from stepsim.network.topology.library import Accuracy, Library, Protocol


def library_of(
    protocols: list[ProtocolTable], reach: dict[str, int], accuracy: list[AccuracyTable]
) -> Library:
    """The library of a file; raises TopologyError naming the table and the entry at fault."""
    for link, count in reach.items():
        if count < 1:
            raise TopologyError(bad_value("collective", f"reach.{link}", count, "at least 1"))
    return Library(
        protocols=tuple(_protocol(f"protocol[{i}]", each) for i, each in enumerate(protocols)),
        reach=tuple(reach.items()),
        accuracy=tuple(_accuracy(f"accuracy[{i}]", each) for i, each in enumerate(accuracy)),
    )


def _protocol(number: str, table: ProtocolTable) -> Protocol:
    place = f"{number} ({table.name})"
    for kind in table.kinds:
        _check_kind(place, "kinds", kind)
    return Protocol(
        name=table.name,
        algorithms=algorithm_names(place, table.algorithms),
        kinds=tuple(table.kinds),
        least_nodes=table.least_nodes,
        most_nodes=table.most_nodes,
        launch_ps=quantity(parse_time_ps, f"{place}: launch", table.launch),
        steps_ps=tuple(
            (link, quantity(parse_time_ps, f"{place}: step.{link}", text))
            for link, text in table.step.items()
        ),
        rates=tuple(table.rate.items()),
        copy_bandwidth=quantity(parse_bandwidth, f"{place}: copy", table.copy),
    )


def _accuracy(place: str, table: AccuracyTable) -> Accuracy:
    _check_kind(place, "collective", table.collective)
    return Accuracy(
        kind=table.collective,
        nodes=table.nodes,
        most_ranks=table.ranks,
        first_bytes=quantity(parse_size_bytes, f"{place}: from", table.first),
        last_bytes=quantity(parse_size_bytes, f"{place}: to", table.to),
        mean=table.mean,
        largest=table.largest,
        samples=table.samples,
        source=table.source,
    )


def _check_kind(place: str, field: str, kind: str) -> None:
    if kind not in COLLECTIVE_KINDS:
        raise TopologyError(bad_value(place, field, kind, f"one of {', '.join(COLLECTIVE_KINDS)}"))


def library_tables(library: Library) -> tuple[list[ProtocolTable], list[AccuracyTable]]:
    """The tables of a library, which `library_of` reads."""
    protocols = [
        ProtocolTable(
            name=each.name,
            algorithms=[*each.algorithms],
            kinds=[*each.kinds],
            least_nodes=each.least_nodes,
            most_nodes=each.most_nodes,
            launch=_micros(each.launch_ps),
            copy=_gigabytes(each.copy_bandwidth),
            step={link: _micros(step) for link, step in each.steps_ps},
            rate=dict(each.rates),
        )
        for each in library.protocols
    ]
    accuracy = [
        AccuracyTable(
            collective=each.kind,
            nodes=each.nodes,
            ranks=each.most_ranks,
            first=f"{each.first_bytes} B",
            to=f"{each.last_bytes} B",
            mean=round(each.mean, 3),
            largest=round(each.largest, 3),
            samples=each.samples,
            source=each.source,
        )
        for each in library.accuracy
    ]
    return protocols, accuracy


def _micros(time_ps: int) -> str:
    return f"{time_ps / 1e6:.4g} us"


def _gigabytes(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.4g} GB/s" if isfinite(bandwidth) else "inf"
