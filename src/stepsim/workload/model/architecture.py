"""What a transformer is made of, layer by layer, and how many parameters each part has.

Widths and counts are those of the whole model; `stepsim.workload.plan` splits them. Layers
are values: alike layers compare equal, so that a model of 126 alike layers costs no more than one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar

import numpy as np
from msgspec.structs import fields

from stepsim.base.arrays import Floats
from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import AtLeastOne, AtLeastZero
from stepsim.base.units import NameWithFields
from stepsim.workload.model.choices import GraphScope
from stepsim.workload.model.dispatch import Routing
from stepsim.workload.model.model import ModelPart
from stepsim.workload.model.parts import Held, Mixing
from stepsim.workload.plan import PlanTable


class Activation(NameWithFields):
    """Between the products of an MLP, of so many `inputs`.

    `gated` ones multiply two inputs and need a third weight.
    """

    gated: bool
    inputs: int

    SWIGLU = "swiglu", True, 2
    GEGLU = "geglu", True, 2
    GELU = "gelu", False, 1
    RELU = "relu", False, 1
    SQUARED_RELU = "sqrelu", False, 1


class NormKind(NameWithFields):
    """How inputs are normed; `weights` are the parameters per element."""

    weights: int

    RMS = "rms", 1
    LAYER = "layer", 2
    LAYER_NO_BIAS = "layer without bias", 1
    PLAIN = "without parameters", 0


class QkNorm(StrEnum):
    """Norm of queries and keys: one weight for all heads, one for each, or one as wide as all."""

    NONE = "none"
    SHARED = "shared"
    PER_HEAD = "per head"
    WHOLE = "whole"


class GroupedAttention(ModelPart):
    """Multi-head, multi-query or grouped-query attention.

    `kv_heads` heads have keys and values; a `window` limits how many tokens back each token sees.
    `value_dim` is the width of a value where it is not that of a key. `gated` outputs are
    multiplied by a second projection of the queries' width, with `head_gates` each head by one
    number. With `shares_values` what is projected for keys is taken for values as well; one that
    `borrows` has neither, and reads those of an earlier layer. Queries of a `query_rank` go through
    a narrower product and a norm (Step-3).
    """

    heads: AtLeastOne
    kv_heads: AtLeastOne
    head_dim: AtLeastOne
    value_dim: int | None = None
    window: AtLeastOne | None = None
    bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    sinks: bool = False
    gated: bool = False
    head_gates: bool = False
    shares_values: bool = False
    borrows: bool = False
    query_rank: AtLeastOne | None = None

    divisors = {"kv_heads": "heads"}

    @property
    def values(self) -> int:
        """Width of a head's value."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def own(self) -> tuple[int, int]:
        """Width of the keys that it projects itself, and of the values beside them."""
        heads = 0 if self.borrows else self.kv_heads
        return heads * self.head_dim, 0 if self.shares_values else heads * self.values

    def parameters(self, hidden: int) -> int:
        """Weights, biases, norms, gates and sinks."""
        queries = self.heads * self.head_dim * (1 + self.gated)
        keys, values = self.own
        inner = queries + keys + values
        normed = 0 if self.borrows else 1
        norms = {
            QkNorm.NONE: 0,
            QkNorm.SHARED: (1 + normed) * self.head_dim,
            QkNorm.PER_HEAD: (self.heads + normed * self.kv_heads) * self.head_dim,
            QkNorm.WHOLE: self.heads * self.head_dim + keys,
        }
        rank = self.query_rank
        weights = hidden * inner if rank is None else rank * (hidden + queries + 1)
        weights += 0 if rank is None else hidden * (keys + values)
        return (
            weights
            + self.heads * self.values * hidden
            + self.heads * hidden * self.head_gates
            + inner * self.bias
            + hidden * self.output_bias
            + norms[self.qk_norm]
            + self.heads * self.sinks
        )


class LatentAttention(ModelPart):
    """Multi-head latent attention (DeepSeek): queries, keys and values through low ranks.

    Without `query_rank` the queries are projected directly. A key is `nope_dim` wide beside a
    rotary part of `rope_dim` that all heads share. With `head_gates` each head's result is
    multiplied by one number.
    """

    heads: AtLeastOne
    query_rank: AtLeastOne | None
    kv_rank: AtLeastOne
    nope_dim: AtLeastOne
    rope_dim: AtLeastZero
    value_dim: AtLeastOne
    bias: bool = False
    head_gates: bool = False

    window: ClassVar[None] = None
    gated: ClassVar[bool] = False

    @property
    def kv_heads(self) -> int:
        """Heads that have keys and values: all of them."""
        return self.heads

    @property
    def values(self) -> int:
        """Width of a head's value."""
        return self.value_dim

    @property
    def head_dim(self) -> int:
        """Width of a head's query and key."""
        return self.nope_dim + self.rope_dim

    def parameters(self, hidden: int) -> int:
        """Weights, norms of the two ranks, biases of the projections down and out, and gates."""
        queries = self.heads * self.head_dim
        rank = self.query_rank
        down = self.kv_rank + self.rope_dim
        return (
            (hidden * queries if rank is None else rank * (hidden + queries + 1))
            + hidden * down
            + self.kv_rank * (1 + self.heads * (self.nope_dim + self.value_dim))
            + self.heads * self.value_dim * hidden
            + ((rank or 0) + down + hidden) * self.bias
            + self.heads * hidden * self.head_gates
        )


CoreAttention = GroupedAttention | LatentAttention


def heads_of_keys(attention: CoreAttention, columns: PlanTable) -> Floats:
    """A rank's heads of keys and values: it has one at least."""
    return np.maximum(attention.kv_heads / columns.tp, 1.0)


def keys_and_values(attention: CoreAttention, columns: PlanTable) -> Floats:
    """Elements of a token's keys and values on a rank."""
    return heads_of_keys(attention, columns) * (attention.head_dim + attention.values)


class Mixer(ModelPart):
    """What a layer has in place of attention where its module alone knows it: one class, one file.

    `heads` are split over tp. Sizes that the methods give are a rank's, of a microbatch, arrays
    over plans. `assumption` is what it is assumed to do, as a warning says it.
    """

    assumption: ClassVar[str]
    scope: ClassVar[GraphScope] = GraphScope.ATTENTION
    """What CUDA graphs that hold parts of layers call it."""
    split: ClassVar[Mapping[str, str]] = {"heads": "heads"}
    """Fields that tp must divide, for a rank has whole ones, by the name that errors give them."""

    heads: AtLeastOne

    def parameters(self, hidden: int) -> int:
        """All parameters of the mixer."""
        raise NotImplementedError

    def shared_out(self) -> Mapping[str, int]:
        """Counts that tp must divide, by the name that an error gives them."""
        return {name: getattr(self, field) for name, field in self.split.items()}

    @property
    def turned_heads(self) -> int:
        """Heads that cp must divide beside tp, where tokens are turned against heads.

        None where ranks that share a sequence gather keys.
        """
        return 0

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """What runs before tokens are mixed, what mixes them, what runs after, and what is sent.

        What is sent over tp before and after all three is that of any layer, and not among it.
        """
        raise NotImplementedError

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What is kept for the backward; a product keeps its input in `element` bytes.

        Outputs are those of products before the mixing, the largest first.
        """
        raise NotImplementedError


class LinearBlock(ModelPart):
    """One product of hidden to hidden in place of attention or MLP, as pruned models have it."""

    def parameters(self, hidden: int) -> int:
        """The weight."""
        return hidden * hidden


class DenseMlp(ModelPart):
    """Two products with an activation between, or three where it is gated."""

    width: AtLeastOne
    activation: Activation = Activation.SWIGLU
    bias: bool = False

    def parameters(self, hidden: int) -> int:
        """Weights and biases."""
        inputs = self.activation.inputs
        weights = hidden * self.width * (inputs + 1)
        return weights + (inputs * self.width + hidden) * self.bias


class ExpertMlp(Routing):
    """Mixture of experts: each token goes to `top_k` of `experts`, and through the shared one.

    `shared_width` is that of all shared experts together. `router_bias` counts as parameters,
    a correction that is no parameter does not. What the activation takes is limited if it is
    `clamped` (GPT-OSS). Experts lie in `groups`, and those of one token in
    at most `token_groups` of them (node-limited routing of DeepSeek-V3). Routed experts work on
    tokens of width `latent`, if there is one: two products more lead there and back, before tokens
    are sent and after they came back (LatentMoE of Nemotron-3; `moe_layer.py` of Megatron-Core).
    """

    width: AtLeastOne
    shared_width: AtLeastZero = 0
    activation: Activation = Activation.SWIGLU
    bias: bool = False
    router_bias: bool = False
    clamped: bool = False
    shared_gate: bool = False
    latent: AtLeastOne | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_groups > self.groups:
            raise WorkloadError(
                bad_value("experts", "token_groups", self.token_groups, f"1 to {self.groups}")
            )
        if self.top_k > self.experts:
            raise WorkloadError(bad_value("experts", "top_k", self.top_k, f"1 to {self.experts}"))

    @property
    def expert(self) -> DenseMlp:
        """One routed expert."""
        return DenseMlp(width=self.width, activation=self.activation, bias=self.bias)

    @property
    def shared(self) -> DenseMlp | None:
        """The shared experts as one MLP, None where there are none."""
        if not self.shared_width:
            return None
        return DenseMlp(width=self.shared_width, activation=self.activation, bias=self.bias)

    def token_width(self, hidden: int) -> int:
        """Width of a token where routed experts work on it, and on its way to them."""
        return self.latent or hidden

    def routed_parameters(self, hidden: int) -> int:
        """Parameters of all routed experts, which expert parallelism shares out."""
        return self.experts * self.expert.parameters(self.token_width(hidden))

    def parameters(self, hidden: int, *, active: bool = False) -> int:
        """Router, experts (`active`: those of one token), shared ones, ways to a latent width."""
        shared = self.shared.parameters(hidden) if self.shared else 0
        routed = self.routed_parameters(hidden) * (self.top_k if active else self.experts)
        return (
            self.experts * (hidden + self.router_bias)
            + routed // self.experts
            + shared
            + hidden * self.shared_gate
            + 2 * hidden * (self.latent or 0)
        )


Attention = CoreAttention | LinearBlock | Mixer
Mlp = DenseMlp | ExpertMlp | LinearBlock


class Layer(ModelPart):
    """One transformer layer; None where it has no attention or no MLP.

    `norms` are those of the hidden width, e.g. 2, or 4 where outputs are normed as well. It has
    `streams` residual streams; several are hyper-connections. An input of its own, `input_width`
    wide, is added through a gate at the end (per-layer embeddings of Gemma).
    """

    attention: Attention | None
    mlp: Mlp | None
    norms: AtLeastZero = 2
    streams: AtLeastOne = 1
    input_width: AtLeastZero = 0

    @property
    def parts(self) -> int:
        """Attention and MLP, as far as it has them."""
        return (self.attention is not None) + (self.mlp is not None)

    @property
    def is_sparse(self) -> bool:
        """Whether it has experts."""
        return isinstance(self.mlp, ExpertMlp)

    def routed_parameters(self, hidden: int) -> int:
        """Parameters of all routed experts."""
        return self.mlp.routed_parameters(hidden) if isinstance(self.mlp, ExpertMlp) else 0

    def parameters(self, hidden: int, norm: NormKind, *, active: bool = False) -> int:
        """Parameters of the layer (`active`: those that one token uses)."""
        attention = self.attention.parameters(hidden) if self.attention else 0
        if isinstance(self.mlp, ExpertMlp):
            mlp = self.mlp.parameters(hidden, active=active)
        else:
            mlp = self.mlp.parameters(hidden) if self.mlp else 0
        n = self.streams  # a hyper-connection: weights of all n streams, biases, three scales
        streams = self.parts * ((2 + n) * n * (n * hidden + 1) + 3) if n > 1 else 0
        own = 2 * hidden * self.input_width
        return attention + mlp + self.norms * norm.weights * hidden + streams + own


Layers = tuple[Layer, ...]


class Tower(ModelPart):
    """What sees: `depth` alike layers over patches of images, and the way to the decoder's tokens.

    A patch of `patch` numbers becomes `hidden` wide; `positions` are learned. `merged` patches
    become one token of the decoder through `products` of (inner width, outer width, bias).
    `others` are parameters of norms and tokens beside. A sample has `tokens` of images, for the
    decoder; with none the tower takes no part in a step. A `frozen` one is not trained.
    """

    hidden: AtLeastOne
    depth: AtLeastOne
    layer: Layer
    norm: NormKind
    patch: AtLeastOne
    products: tuple[tuple[int, int, bool], ...]
    patch_bias: bool = True
    positions: AtLeastZero = 0
    merged: AtLeastOne = 1
    others: AtLeastZero = 0
    tokens: AtLeastZero = 0
    frozen: bool = False

    def parameters(self) -> int:
        """All parameters of the tower."""
        first = self.hidden * (self.patch + self.patch_bias + self.positions)
        layers = self.depth * self.layer.parameters(self.hidden, self.norm)
        ways = sum(inner * outer + bias * outer for inner, outer, bias in self.products)
        return first + layers + ways + self.others


class Architecture(ModelPart):
    """A decoder: embedding, layers, final norm and head.

    `tied` heads share the embedding's weight. `positions` are learned position embeddings.
    `prediction_layers` are multi-token prediction layers, each with a product of 2 hidden to
    hidden, two norms more and a norm of its own at the end; embedding and head are shared.
    Layers with an input of their own take it from a second embedding of `input_vocabulary` tokens,
    as wide as all these inputs, and from a product of the first. A `tower` makes tokens of images.
    """

    name: str
    hidden: AtLeastOne
    layers: Layers
    vocabulary: AtLeastOne
    tied: bool = False
    norm: NormKind = NormKind.RMS
    embedding_norm: bool = False
    positions: AtLeastZero = 0
    head_bias: bool = False
    dropout: bool = False
    prediction_layers: Layers = ()
    input_vocabulary: AtLeastZero = 0
    tower: "Tower | None" = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise WorkloadError(bad_value(self.name, "layers", 0, "at least 1"))

    @property
    def depth(self) -> int:
        """Layers, without those of multi-token prediction."""
        return len(self.layers)

    @property
    def streams(self) -> int:
        """Residual streams between layers."""
        return self.layers[0].streams

    @property
    def is_sparse(self) -> bool:
        """Whether any layer has experts."""
        return any(layer.is_sparse for layer in self.layers)

    @property
    def mixes(self) -> bool:
        """Whether any layer mixes tokens otherwise than by usual attention."""
        return any(isinstance(kind.attention, Mixer) for kind in self.layer_kinds())

    def layer_counts(self) -> Mapping[Layer, int]:
        """How many layers there are of each kind, in order of first appearance."""
        return Counter(self.layers)

    def layer_kinds(self) -> Layers:
        """Every kind of layer once, those of multi-token prediction included."""
        return tuple(dict.fromkeys((*self.layers, *self.prediction_layers)))

    @property
    def embedding_parameters(self) -> int:
        """Token and position embeddings, the norm after them, and inputs of layers.

        These are of an embedding, a product of the first one, and a norm.
        """
        table = (self.vocabulary + self.positions) * self.hidden
        norm = self.norm.weights * self.hidden * self.embedding_norm
        inputs = self.input_width * (self.input_vocabulary + self.hidden)
        return table + norm + inputs + max(layer.input_width for layer in self.layers)

    @property
    def input_width(self) -> int:
        """Width of the inputs of all layers that have one of their own."""
        return sum(layer.input_width for layer in self.layers)

    @property
    def head_parameters(self) -> int:
        """Final norm, the head's weight unless it is the embedding's, the collapse of streams."""
        weight = self.vocabulary * (self.hidden * (not self.tied) + self.head_bias)
        n = self.streams
        streams = n * (n * self.hidden + 1) + 1 if n > 1 else 0
        return weight + self.norm.weights * self.hidden + streams

    def parameters(self, *, active: bool = False) -> int:
        """All parameters without multi-token prediction and tower.

        `active` counts the experts that one token goes through alone.
        """
        layers = sum(
            count * layer.parameters(self.hidden, self.norm, active=active)
            for layer, count in self.layer_counts().items()
        )
        return self.embedding_parameters + layers + self.head_parameters

    @property
    def seeing(self) -> Tower | None:
        """The tower that takes part in a step, None where no sample has images."""
        return self.tower if self.tower is not None and self.tower.tokens else None

    @property
    def first_parameters(self) -> int:
        """Trained parameters before the layers: the embedding's, and those of what sees."""
        tower = self.seeing
        return self.embedding_parameters + (0 if not tower or tower.frozen else tower.parameters())

    @property
    def published_parameters(self) -> int:
        """All parameters as vendors publish them: with the tower, without token prediction."""
        return self.parameters() + (self.tower.parameters() if self.tower else 0)


def said_of_architecture(a: Architecture) -> Iterator[tuple[str, str]]:
    """A model for people: its size, then each kind of its layers with all that it has."""
    active = a.parameters(active=True)
    used = f", {active / 1e9:.4g} active" if active < a.parameters() else ""
    sees = f", {a.tower.parameters() / 1e9:.3g} of them in what sees" if a.tower else ""
    yield (
        "model",
        f"{a.published_parameters / 1e9:.4g} billion parameters{sees}{used}; {a.depth} layers, "
        f"hidden {a.hidden}, vocabulary {a.vocabulary}",
    )
    if used:
        yield (
            "active",
            "all but the routed experts that a token does not go to; embedding and head count",
        )
    for layer, count in a.layer_counts().items():
        parts = [_said_of_part(each) for each in (layer.attention, layer.mlp) if each is not None]
        yield f"{count} layer{'s' * (count != 1)}", "; ".join(parts)


def _said_of_part(part: ModelPart) -> str:
    """A part of a layer by its class and the fields that are not as they usually are."""
    said = []
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, ModelPart):
            said.append(_said_of_part(value))
        elif value != field.default or field.required:
            words = field.name.replace("_", " ")
            said.append(words if value is True else f"{words} {value}")
    return f"{part.called} ({', '.join(said)})"
