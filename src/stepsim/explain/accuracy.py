"""Where a step's communications lie: in what was measured of the machine, and met well, or not."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stepsim.base.units import format_size_bytes
from stepsim.explain.network_use import PlacedComm
from stepsim.network.collectives.cost import MEASURED
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import Accuracy, size_band

_WORTH = 0.02
"""Communications that take less of the step are passed over."""
_FAR = 4
"""Groups of so many times the ranks that were measured are named."""


def accuracy_warnings(
    comms: Sequence[PlacedComm], topology: Topology, step_time_ps: int
) -> Iterator[str]:
    """What a machine's library says nothing about, or is poor at, if it may be 2 % of the step."""
    accuracy = topology.library.accuracy
    unknown: dict[str, set[str]] = defaultdict(set)
    for comm in comms:
        use = comm.use
        if use.algorithms == (MEASURED,) or use.count * use.time_ps < _WORTH * step_time_ps:
            continue
        found = _stated(accuracy, comm)
        if found is None or use.ranks > _FAR * found.most_ranks:
            place = "in a node" if comm.nodes == 1 else "over several nodes"
            beyond = f" of more than {found.most_ranks} ranks" if found else ""
            unknown[f"{beyond} {place}".strip()].add(use.kind)
        elif not found.good:
            yield (
                f"{use.kind} of {format_size_bytes(use.size_bytes)} over {use.ranks} ranks: on "
                f"{topology.name} such times differ from measured ones by {found.mean:.0%} on "
                f"average, {found.largest:.0%} at most"
            )
    if accuracy and unknown:
        named = "; ".join(f"{', '.join(sorted(kinds))} {at}" for at, kinds in unknown.items())
        yield (
            f"{topology.name} has no measurement of {named}: these times are extrapolated (stepsim "
            f"inspect {topology.name})"
        )


def _stated(accuracy: Sequence[Accuracy], comm: PlacedComm) -> Accuracy | None:
    """What is stated of a communication: of its kind, placement and size; None if nothing."""
    kind, spread = comm.use.kind, comm.nodes > 1
    alike = [a for a in accuracy if a.kind == kind and (a.nodes > 1) == spread]
    band = size_band(comm.use.size_bytes)
    return next((a for a in alike if size_band(a.first_bytes) == band), None)
