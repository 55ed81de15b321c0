"""A search as people ask for it: sizes such as `256..1024`, and options with fixed values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stepsim.base.errors import PlanError
from stepsim.explore.plan.space import SEARCHED, PlanSpace
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.workload.model.model import Model

_NAMES = {"mbs": "microbatch_size", "vpp": "chunks", "etp": "expert_tp"}


def parse_sizes(text: str) -> tuple[int, ...]:
    """NPU counts of `256`, `256,512`, or `256..1024`, which doubles; raises PlanError."""
    wrong = PlanError(f"gpus is {text!r}: expected 512, 256,512 or 256..1024")
    try:
        first, dots, last = text.partition("..")
        if not dots:
            found = tuple(int(each) for each in text.split(","))
        else:
            low, high = int(first), int(last)
            found = tuple(low << i for i in range(64) if 0 < low << i <= high)
    except ValueError:
        raise wrong from None
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise wrong
    return found


def parse_fixed(texts: Iterable[str]) -> dict[str, tuple[object, ...]]:
    """Options and their values of texts such as `tp=8` or `recompute=none,full`.

    Raises PlanError naming the option.
    """
    found: dict[str, tuple[object, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        name = _NAMES.get(name, name)
        if not equals or name not in SEARCHED:
            raise PlanError(f"fix {text!r}: expected NAME=VALUE with {', '.join(SEARCHED)}")
        if name in found:
            raise PlanError(f"fix: {name} is given twice")
        found[name] = tuple(OPTIONS[name].of(each.strip()) for each in values.split(","))
    return found


def make_space(
    model: Model,
    topology: Topology,
    options: StepOptions,
    npus: Sequence[int],
    *,
    fixed: Mapping[str, tuple[object, ...]],
    most: Mapping[str, int],
) -> PlanSpace:
    """The space of a search; raises PlanError where batch or sequence are not given."""
    for name in ("global_batch", "sequence"):
        if getattr(options, name) is None:
            flag = name.replace("_", "-")
            raise PlanError(f"{name} is missing: expected a number (--{flag})")
    assert options.global_batch is not None
    assert options.sequence is not None
    return PlanSpace(
        architecture=model.architecture,
        npus=tuple(npus),
        global_batch=options.global_batch,
        sequence=options.sequence,
        domain=interconnect_of(topology.fit(max(npus))).domain,
        base=replace(options, npus=None),
        fixed=fixed,
        most=most,
    )
