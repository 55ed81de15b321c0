"""What was understood of a workload, a topology, a device and a framework.

The numbers of a device or a framework stand with what they rest on: the kind of evidence, then the
source. Protocols of a machine's communication library stand with how well they meet measurements.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import get_args

from msgspec import Meta, Struct
from msgspec.structs import fields

from stepsim.base.axes import CollectiveKind, Phase
from stepsim.base.structs import Names, unbounded
from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps, npu_word
from stepsim.documents.table import (
    AS_IS,
    BANDWIDTH,
    SIZE,
    TEXT,
    TIME,
    Heads,
    Sheet,
    Table,
    paths,
    table_of,
)
from stepsim.network.topology.dimension import Library, Protocol
from stepsim.network.topology.inspection import TopologyNumbers
from stepsim.parallel.inspection import Inspection
from stepsim.views.catalog import FLOPS
from stepsim.views.words import size_words
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Evidence, Provenance, source_of
from stepsim.workload.model.framework import Framework

_TRAFFIC = paths("group, collective = kind, count, bytes = size_bytes")
_LINKS = paths(
    "links = name, count, bandwidth, for payload = efficiency, latency_ps, "
    "endpoint = endpoint_latency_ps",
    {"bandwidth": BANDWIDTH.of(lambda link: unbounded(link.bandwidth))},
)


def workload_shown(seen: Inspection, device: str) -> Sheet:
    """What the file says of itself, the job, and what stage 0 computes and communicates.

    `device` is the accelerator of the ranks, empty where it is not known.
    """
    plan = seen.plan
    least, most = min(seen.layers_per_stage), max(seen.layers_per_stage)
    blocks = len(seen.workload.microbatches)
    bare, rows = seen.placeholders
    alone = ", ".join(sorted(plan.alone))
    yield _microbatch_words(seen)
    yield (
        *((("reading", seen.workload.reading),) if seen.workload.reading else ()),
        ("workload", seen.workload.source),
        *seen.workload.described,
        ("job", size_words(plan, plan.degrees(), device)),
        *([("groups of one", f"{alone}: their collectives transfer nothing")] if alone else []),
        ("blocks", f"{blocks} microbatch block{'s' * (blocks != 1)} in the file"),
        ("layers", f"{least if least == most else f'{least} to {most}'} per stage"),
        ("to next stage", f"{format_size_bytes(seen.pp_comm_bytes)} per microbatch"),
        ("placeholders", f"{bare} of {rows} rows with compute are 1 or 1000 ns throughout"),
    )
    times = (*seen.compute_ps.values(), seen.step_compute_ps)
    names = ("forward", "input grad", "weight grad", "optimizer and gradient sync")
    yield Table(caption="compute of stage 0", columns=dict.fromkeys(names, TIME), rows=(times,))
    yield table_of("collectives of stage 0, per microbatch", seen.traffic, _TRAFFIC)
    yield table_of(
        "collectives of stage 0, optimizer and gradient sync", seen.step_traffic, _TRAFFIC
    )


def _microbatch_words(seen: Inspection) -> str:
    """What a microbatch takes on the first stage, in a line."""
    forward = format_time_ps(seen.compute_ps[Phase.FORWARD])
    backward = sum(time for phase, time in seen.compute_ps.items() if phase is not Phase.FORWARD)
    sent = format_size_bytes(sum(each.size_bytes for each in seen.traffic))
    return (
        f"{seen.workload.source}: stage 0 computes {forward} forward and "
        f"{format_time_ps(backward)} backward per microbatch, and communicates {sent}"
    )


def topology_shown(seen: TopologyNumbers, library: Library) -> Sheet:
    """What a topology is made of, its protocols last."""
    grows = ", as many as a job needs" if seen.grows else ""
    diameter = f"{seen.diameter_hops} links, {format_time_ps(seen.diameter_ps)}"
    injection = format_bandwidth(unbounded(seen.injection_bandwidth))
    bisection = format_bandwidth(unbounded(seen.bisection_bandwidth))
    word = npu_word(seen.device)
    links = ", ".join(
        f"{each.name} {format_bandwidth(unbounded(each.bandwidth))}" for each in seen.links
    )
    yield f"{seen.name}: nodes of {seen.node_size} {word}s; one link each way: {links}"
    yield (
        ("topology", seen.name),
        (f"{word}s", f"{seen.npus}{grows}; {seen.nodes} nodes of {seen.node_size}"),
        *([("device", seen.device)] if seen.device else []),
        ("injection", f"{injection} per {word}, one way"),
        ("bisection", f"{bisection} one way: {seen.bisection_method}"),
        ("diameter", f"{diameter} with the software at its ends"),
        ("per collective", format_time_ps(seen.launch_latency_ps)),
        ("algorithms", ", ".join(seen.algorithms) or "all"),
    )
    yield table_of("links, one direction each", seen.links, _LINKS)
    yield from library_shown(library)
    if seen.source:
        yield f"source: {seen.source}"


# How constants are written, by the ends of their names.
_UNITS: Heads = {
    "_ps": TIME, "_bytes": SIZE, "bandwidth": BANDWIDTH, "rate": FLOPS, "peak": FLOPS,
}  # fmt: skip
# Fields that say of which files they are, or are tables of their own.
_NO_CONSTANTS = ("name", "also", "errors", "sources", "defaults", "recipes")
_USUAL = f"{Evidence.SHARED}: the usual case, which a file leaves out"


# A number's name, its value in words, what it is, and where it is from.
_Constant = tuple[str, str, str, Provenance]

_COLUMNS = paths("number = 0, value = 1, what it is = 2, 3.evidence, source = 3.text")
_ERRORS = paths(
    "GPU = device, models, runs, mean = error, median, 90 % within = ninety, sources = source",
    {"models": AS_IS.of(lambda band: "experts" if band.sparse else "dense")},
)
_ACCURACY = paths(
    "collective = kind, nodes, ranks = most_ranks, sizes, mean, largest, times = samples, ",
    {
        "sizes": TEXT.of(
            lambda each: (
                f"{format_size_bytes(each.first_bytes)} to {format_size_bytes(each.last_bytes)}"
            )
        ),
        "": TEXT.of(lambda each: "" if each.good else "poor"),
    },
)


def constants_shown(noun: Device | Framework) -> Sheet:
    """Every number of a device or a framework by its key in a file, and what each rests on.

    Of a framework also how far off predictions with it were.
    """
    kind = "device" if isinstance(noun, Device) else "framework"
    constants = list(_constants(noun, noun.sources, ""))
    yield table_of(f"{kind} {noun.name}", constants, _COLUMNS)
    if isinstance(noun, Device):
        return
    if noun.errors:
        caption = "errors of predictions, each source with constants set without it"
        yield table_of(caption, noun.errors, _ERRORS)
    else:
        yield "no published run with it was compared: its error is not known"


def _constants(noun: Struct, sources: Mapping[str, str], before: str) -> Iterator[_Constant]:
    """The numbers of a noun, those of nouns in it as `rate bf16 peak`.

    Their source is that of the whole name, of the name without its unit, or of its first word; of
    rates of products also of the last.
    """
    for field in fields(noun):
        value, name = getattr(noun, field.name), before + field.encode_name
        several = value if isinstance(value, Mapping) else {"": value}
        for key, each in several.items():
            own = f"{name}_{key}".rstrip("_")
            if isinstance(each, Struct):
                yield from _constants(each, sources, f"{own}_")
            elif field.name not in _NO_CONSTANTS:
                words = own.split("_")
                last = words[-1] if words[0] == "rate" else ""
                known = own, "_".join(words[:-1]), last, words[0]
                source = next(filter(None, map(sources.get, known)), None)
                source = _USUAL if source is None and each == field.default else source
                column = next((c for end, c in _UNITS.items() if field.name.endswith(end)), TEXT)
                text = ", ".join(each) if isinstance(each, tuple) else column.text(each)
                said = [m for m in get_args(field.type) if isinstance(m, Meta) and not m.extra]
                meant = said[-1].description if said else ""
                yield " ".join(words), text, meant or "", source_of(source)


def library_shown(library: Library) -> Sheet:
    """A table of protocols and one of accuracies; a sentence where nothing was measured."""
    if library.protocols:
        yield _protocols(library)
    if library.accuracy:
        caption = "off measured times (to so many nodes and ranks)"
        yield table_of(caption, library.accuracy, _ACCURACY)
        yield from _unmeasured(library)
    elif library.protocols:
        yield "accuracy: its times were not compared with measured ones"


def _unmeasured(library: Library) -> Iterator[str]:
    """Collectives of which no time was measured, in a node or over several of them."""
    for place, spread in (("in a node", False), ("over several nodes", True)):
        known = {each.kind for each in library.accuracy if (each.nodes > 1) == spread}
        missing = [str(kind) for kind in CollectiveKind if kind not in known]
        if missing:
            yield f"not measured {place}: {', '.join(missing)}: these times are extrapolated"


def _protocols(library: Library) -> Table:
    links = list(dict.fromkeys(n for each in library.protocols for n in each.steps_ps))
    columns = dict.fromkeys(
        ("protocol", "for", "nodes", "launch", *(f"step {n}" for n in links)), TEXT
    )
    columns |= dict.fromkeys((*(f"rate {n}" for n in links), "copy"), TEXT)
    rows = tuple(_protocol_row(each, links) for each in library.protocols)
    caption = "protocols: on top of launch and endpoint latency; shares of the links' payload"
    return Table(caption=caption, columns=columns, rows=rows)


def _protocol_row(protocol: Protocol, links: list[str]) -> Names:
    steps, rates = protocol.steps_ps, protocol.rates
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
