"""Hyper-connections: several residual streams that each part of a layer reads and writes mixed.

Shapes are those of `DeepseekV4HyperConnection` of transformers (manifold-constrained, Xie et al.
2026). Before a part a product over all streams makes weights, and these make one input of the
streams; after it the output goes to all streams, which are mixed. Streams lie where tokens lie
outside of products (s a rank), and messages of a pipeline carry all of them. Parameters are
`connection_parameters`; the collapse before the head has some too, its time is left out.
"""

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import Layer
from stepsim.workload.model.choices import RecomputeModule
from stepsim.workload.model.operators import linear, memory
from stepsim.workload.model.parts import Operator, OperatorKind
from stepsim.workload.plan import PlanTable


def collapse_streams(layer: Layer, hidden: int, columns: PlanTable) -> tuple[Operator, ...]:
    """Weights by a product in bf16, and one input of n streams; nothing where there is one.

    Forward the streams are read and the input written: n + 1 widths in 2 bytes. Backward streams
    and the input's gradient are read, and the streams' gradients read and written: 3n + 1.
    """
    n, s = layer.streams, columns.shard_tokens
    if n == 1:
        return ()
    width = float(hidden)
    return (
        linear("stream weights", columns, s, n * width, float((2 + n) * n), OperatorKind.HEAD),
        replace(
            memory("streams to one", 2.0 * s * (n + 1) * width, 2.0 * s * (3 * n + 1) * width),
            module=RecomputeModule.HYPER_CONNECTIONS,
        ),
    )


def expand_streams(name: str, layer: Layer, hidden: int, columns: PlanTable) -> Operator:
    """A part's output added to all n streams, which are mixed: 2n + 1 widths in 2 bytes.

    Backward reads the streams, their gradients and the output, and writes the gradients of both:
    3n + 2.
    """
    n, size = layer.streams, 2.0 * columns.shard_tokens * hidden
    return memory(name, size * (2 * n + 1), size * (3 * n + 2))


def kept_streams(layer: Layer, hidden: int, columns: PlanTable) -> Floats:
    """Bytes that a layer keeps of its streams: n before each part, and each part's output."""
    if layer.streams == 1:
        return 0.0 * columns.shard_tokens
    return 2.0 * columns.shard_tokens * hidden * (layer.streams + 1) * layer.parts
