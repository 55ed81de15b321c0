"""Architectures by the name that a configuration gives them: what the code of each fixes.

Facts of the model classes in Hugging Face transformers 4.57. What a configuration says itself is
read by `stepsim.files.models.huggingface`; a family says what it does not.
"""

from enum import StrEnum

from stepsim.base.structs import Noun, shipped
from stepsim.workload.model.architecture import NormKind, QkNorm


class WindowRule(StrEnum):
    """Which layers have the sliding window where no `layer_types` say."""

    ALL = "all"
    NONE = "none"
    EVEN = "even"
    PATTERN = "all but every nth"
    UPPER = "from max_window_layers, where use_sliding_window"


class Family(Noun):
    """What the code of an architecture fixes; keys named here may change it.

    `bias` is that of queries, keys and values, `output_bias` and `mlp_bias` are others; `bias_keys`
    set all three, `attention_bias_key` the first two. `nested` configurations describe their text
    model in `text_config`. `learned` positions are in `max_position_embeddings` or its synonyms,
    `extra_positions` more. `clamps` limits what activations of experts take. With
    `output_gate` what attention makes is gated by a second projection; an `indexer`
    chooses what latent attention reads; one that `compresses` has keys for several tokens.
    `nth` layers see all where windows have a pattern. A `mixer` stands in place of attention in
    some layers, or in all that `always_mixes`; gates of one with `full_gates` have no low rank.
    `head_gates` gate each head by a number. Layers of `singles` are one part of a pattern each;
    `doubled` ones are two, of which the first has experts as well. Experts
    may have the dense MLP `dense_beside` them as a shared one; `shared_is_dense` where the shared
    width is that of dense layers. `tower` says how what sees is described. One that `is_guessed` is
    taken for a class that nobody knows.
    """

    gated: bool = True
    activation: str = "silu"
    norm: NormKind = NormKind.RMS
    norms: int = 2
    bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    bias_key: str = ""
    attention_bias_key: str = "attention_bias"
    output_follows: bool = True
    qk_norm: QkNorm = QkNorm.NONE
    qk_norm_key: str = ""
    tied: bool = False
    learned: bool = False
    extra_positions: int = 0
    embedding_norm: bool = False
    window: WindowRule = WindowRule.NONE
    nested: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    sinks: bool = False
    clamps: bool = False
    output_gate: bool = False
    indexer: bool = False
    compresses: bool = False
    nth: int = 6
    mixer: str = ""
    always_mixes: bool = False
    full_gates: bool = False
    head_gates: bool = False
    singles: bool = False
    doubled: bool = False
    dense_beside: bool = False
    shared_is_dense: bool = False
    tower: str = ""
    is_guessed: bool = False


class _Families(Noun):
    """`families.toml`: every architecture that is read, by name; `refused` are not modelled.

    `by_key` has the family of an architecture that nobody here knows, by the first of these keys
    that it has. `vision` are sizes that the class of a tower in transformers has where a published
    configuration leaves them out.
    """

    family: dict[str, Family]
    by_key: dict[str, Family]
    refused: dict[str, str]
    vision: dict[str, dict[str, int]]


def families() -> _Families:
    """What is known of architectures."""
    return shipped(__file__, "families.toml", _Families)
