"""How a framework computes and exchanges attention of a sequence that ranks share."""

from msgspec import Struct

from stepsim.workload.model.choices import ContextParallelKind


class ContextParallel(Struct, frozen=True, kw_only=True):
    """Context parallelism of a framework; by default that of Transformer Engine.

    `exchange` is the one of its jobs where nobody says it. In a `balanced` sequence a rank has a
    chunk of the head and one of the tail, so that all have as much of the causal mask; else it has
    one piece, and the last rank has nearly twice the mean. A ring runs a kernel a hop; with
    `gathers_by_hop` so does an all-gather, which else runs the whole kernel after it. `hides` says
    that messages run beside the kernel of the hop before; `kernels_at_once` are those of hops that
    fill the device together. With `repeats_heads` there are as many heads of keys and values as of
    queries when they are sent.

    A hop merges its output into the sum of those before: `merge_bytes` are moved per element of
    the output, `sum_bytes` per element of the gradients of queries, keys and values, of which
    those of keys and values are sent in `gradient_bytes`. With `returns_gradients` these go one
    hop further, to where they belong, beside no kernel. The host launches a hop in `hop_ps`, and
    in twice that in the backward.
    """

    exchange: ContextParallelKind = ContextParallelKind.RING
    balanced: bool = True
    gathers_by_hop: bool = False
    hides: bool = True
    kernels_at_once: int = 2
    repeats_heads: bool = False
    merge_bytes: float = 6.0
    sum_bytes: float = 6.0
    gradient_bytes: int = 2
    returns_gradients: bool = False
    hop_ps: int = 0
