"""What is tried where nobody says it: by the plan of a model by default, and by a search."""

from math import gcd

from stepsim.options import StepOptions
from stepsim.workload.model.architecture import Architecture, ExpertMlp
from stepsim.workload.model.choices import AttentionKernel, Recompute

MICROBATCH_SIZES = (1, 2, 4, 8)

_LEAST_SEQUENCE = 4096


def recomputations(options: StepOptions) -> tuple[Recompute, ...]:
    """What may be recomputed: what was asked, else nothing, or all.

    Core attention alone is worth it only where its scores are kept.
    """
    if options.recompute is not None:
        return (options.recompute,)
    unfused = options.attention is AttentionKernel.UNFUSED
    scores = (Recompute.SELECTIVE,) if unfused else ()
    return (Recompute.NONE, *scores, Recompute.FULL)


def most_context(sequence: int) -> int:
    """The largest degree of cp: shorter parts of a sequence are not worth their exchange."""
    return max(1, sequence // _LEAST_SEQUENCE)


def common_experts(architecture: Architecture) -> int:
    """The largest degree of ep that all layers with experts can have; 0 where there are none."""
    mlps = (layer.mlp for layer in architecture.layer_kinds())
    return gcd(*(mlp.experts for mlp in mlps if isinstance(mlp, ExpertMlp)))
