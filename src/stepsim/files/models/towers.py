"""What sees in a multimodal model, in the words of its `vision_config`."""

from collections.abc import Callable, Mapping
from typing import Any

from stepsim.files.models.fields import Fields, families
from stepsim.workload.model.architecture import (
    Activation,
    DenseMlp,
    GroupedAttention,
    Layer,
    NormKind,
    Tower,
)

_HIDDEN = ("hidden_size", "vt_hidden_size", "embed_dim")
_DEPTH = ("depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
_HEADS = ("num_heads", "num_attention_heads", "vt_num_attention_heads", "heads")
_WIDTH = ("intermediate_size", "vt_intermediate_size")


def read_tower(
    kind: str, values: Mapping[str, Any], *, place: str, hidden: int
) -> tuple[Tower | None, Mapping[str, Any]]:
    """The tower of a configuration, whose decoder is `hidden` wide, and what its class fixes of it.

    None where neither the configuration nor its class says. Raises WorkloadError naming the key at
    fault.
    """
    outer = Fields(place=place, values=values)
    fields = outer.inside("vision_config")
    defaults = families().vision.get(kind, {})
    if kind not in _TOWERS or not (fields.values or defaults):
        return None, {}
    fields = Fields(place=fields.place, values=fields.values, defaults=defaults)
    return _TOWERS[kind](fields, outer, hidden), fields.assumed


def _patch(fields: Fields, frames: int) -> int:
    """Numbers of a patch: three colours of its points, of so many frames."""
    side = fields.count("patch_size")
    frames = fields.count("temporal_patch_size", default=frames)
    channels = fields.count("in_channels", "in_chans", "num_channels", default=3)
    return channels * frames * side * side


def _patches(fields: Fields) -> int:
    """Patches of an image."""
    return (fields.count("image_size") // fields.count("patch_size")) ** 2


def _tower(
    fields: Fields,
    hidden: int,
    *,
    gated: bool = False,
    bias: bool = True,
    norms: int = 2,
    width: int | None = None,
    frames: int = 1,
    **more: Any,
) -> Tower:
    """A tower of equal layers: attention to all patches and an MLP; `more` are its other fields.

    Norms are RMS norms where MLPs are gated.
    """
    heads = fields.count(*_HEADS)
    layer = Layer(
        attention=GroupedAttention(
            heads=heads,
            kv_heads=fields.count("num_key_value_heads", default=heads),
            head_dim=fields.count("head_dim", default=hidden // heads),
            bias=bias,
            output_bias=bias,
        ),
        mlp=DenseMlp(
            width=width or fields.count(*_WIDTH),
            activation=Activation.SWIGLU if gated else Activation.GELU,
            bias=bias,
        ),
        norms=norms,
    )
    return Tower(
        hidden=hidden,
        depth=fields.count(*_DEPTH),
        layer=layer,
        norm=NormKind.RMS if gated else NormKind.LAYER,
        patch=_patch(fields, frames),
        **more,
    )


def _qwen2(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Qwen2-VL: layer norms, a plain MLP, and a merger of 4 patches."""
    hidden = fields.count("embed_dim")
    merged = fields.count("spatial_merge_size") ** 2
    out = fields.count("hidden_size", default=decoder)
    return _tower(
        fields,
        hidden,
        width=int(fields.number("mlp_ratio", 4.0) * hidden),
        frames=2,
        patch_bias=False,
        merged=merged,
        products=_merger(hidden * merged, out),
        others=2 * hidden,
    )


def _qwen2_5(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Qwen2.5-VL: RMS norms and a gated MLP."""
    hidden = fields.count("hidden_size")
    merged = fields.count("spatial_merge_size") ** 2
    return _tower(
        fields,
        hidden,
        gated=True,
        frames=2,
        patch_bias=False,
        merged=merged,
        products=_merger(hidden * merged, fields.count("out_hidden_size", default=decoder)),
        others=hidden,
    )


def _qwen3(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Qwen3-VL and Qwen3.5: learned positions, and a merger more for each deep stack."""
    hidden = fields.count("hidden_size")
    merged = fields.count("spatial_merge_size") ** 2
    out = fields.count("out_hidden_size", default=decoder)
    stacks = len(fields.items("deepstack_visual_indexes") or [])
    return _tower(
        fields,
        hidden,
        frames=2,
        positions=fields.count("num_position_embeddings", default=0),
        merged=merged,
        products=_merger(hidden * merged, out) * (1 + stacks),
        others=2 * hidden * (1 + merged * stacks),
    )


def _merger(inner: int, out: int) -> tuple[tuple[int, int, bool], ...]:
    """Two products with a bias each: merged patches to their own width, then to the decoder's."""
    return (inner, inner, True), (inner, out, True)


def _moonvit(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Kimi: positions on a grid, and a projector of 4 patches."""
    hidden = fields.count(*_HIDDEN)
    rows = fields.count("init_pos_emb_height", "pos_emb_height", default=64)
    columns = fields.count("init_pos_emb_width", "pos_emb_width", default=64)
    sides = fields.items("merge_kernel_size") or [2, 2]
    merged = int(sides[0]) * int(sides[-1])
    return _tower(
        fields,
        hidden,
        positions=rows * columns,
        merged=merged,
        products=_merger(hidden * merged, decoder),
        others=4 * hidden,
    )


def _llama4(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Llama 4: a class token, four patches shuffled to one, an adapter and a projector."""
    hidden = fields.count("hidden_size")
    merged = round(1 / fields.number("pixel_shuffle_ratio", 0.5)) ** 2
    inner, middle = fields.count("projector_input_dim"), fields.count("projector_output_dim")
    return _tower(
        fields,
        hidden,
        patch_bias=False,
        positions=_patches(fields) + 1,
        merged=merged,
        products=(
            (fields.count("intermediate_size"), inner, False),
            (inner, middle, False),
            (fields.count("vision_output_dim"), decoder, False),
        ),
        others=5 * hidden,
    )


def _siglip(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Gemma 3: SigLIP, whose patches are averaged to a fixed number of tokens."""
    hidden = fields.count("hidden_size")
    tokens = outer.count("mm_tokens_per_image", default=256)
    width = fields.count("intermediate_size")
    pooled = 4 * hidden * hidden + 2 * hidden * width + width + 8 * hidden
    head = pooled if fields.flag("vision_use_head", default=True) else 0
    return _tower(
        fields,
        hidden,
        positions=_patches(fields),
        merged=max(_patches(fields) // tokens, 1),
        products=((hidden, decoder, False),),
        others=3 * hidden + head,
    )


def _gemma4(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Gemma 4: four norms a layer, a gated MLP, positions by row and column."""
    hidden = fields.count("hidden_size")
    head = fields.count("head_dim", default=hidden // fields.count(*_HEADS))
    return _tower(
        fields,
        hidden,
        gated=True,
        bias=False,
        norms=4,
        patch_bias=False,
        positions=2 * fields.count("position_embedding_size", default=10240),
        merged=fields.count("pooling_kernel_size", default=3) ** 2,
        products=((hidden, decoder, False),),
        others=2 * head * fields.count(*_DEPTH) + 2 * hidden * fields.flag("standardize"),
    )


def _pixtral(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Mistral 3: RMS norms, a gated MLP, and a projector of 4 patches."""
    hidden = fields.count("hidden_size")
    merged = outer.count("spatial_merge_size", default=2) ** 2
    bias = outer.flag("multimodal_projector_bias")
    return _tower(
        fields,
        hidden,
        gated=True,
        bias=False,
        patch_bias=False,
        merged=merged,
        products=(
            (hidden * merged, hidden, False),
            (hidden, decoder, bias),
            (decoder, decoder, bias),
        ),
        others=2 * hidden,
    )


def _glm4v(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of GLM-4.5V: a gated MLP, a convolution that merges 4 patches, and a gated merger."""
    hidden = fields.count("hidden_size")
    merged = fields.count("spatial_merge_size") ** 2
    out = fields.count("out_hidden_size", default=decoder)
    wide = fields.count("intermediate_size")
    return _tower(
        fields,
        hidden,
        gated=True,
        bias=False,
        width=out,
        frames=2,
        positions=_patches(fields),
        merged=merged,
        products=(
            (hidden * merged, out, True),
            (out, out, False),
            *(((out, wide, False),) * 3),
        ),
        others=2 * out + 2 * hidden,
    )


def _minimax(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of MiniMax-M3: a projector of each patch, and another of 4 of them."""
    hidden = fields.count("hidden_size")
    merged = fields.count("spatial_merge_size", default=2) ** 2
    inner = outer.count("projector_hidden_size", default=decoder)
    return _tower(
        fields,
        hidden,
        frames=2,
        patch_bias=False,
        merged=merged,
        products=(
            *((hidden, inner, True), (inner, decoder, True)),
            *((merged * decoder, inner, True), (inner, decoder, True)),
        ),
        others=2 * hidden,
    )


def _step(fields: Fields, outer: Fields, decoder: int) -> Tower:
    """Of Step-3.7: two convolutions of 3 x 3 that halve both sides, and a projector."""
    hidden = fields.count("width", "hidden_size")
    return _tower(
        fields,
        hidden,
        norms=3,  # two, and a scale of each part
        width=int(hidden * fields.number("mlp_ratio", 8960 / 1536)),
        patch_bias=False,
        positions=_patches(fields),
        merged=16,
        products=(
            (9 * hidden, 2 * hidden, True),
            (18 * hidden, 4 * hidden, True),
            (4 * hidden, decoder, False),
        ),
        others=2 * hidden,
    )


_TOWERS: Mapping[str, Callable[[Fields, Fields, int], Tower]] = {
    "qwen2": _qwen2,
    "qwen2.5": _qwen2_5,
    "qwen3": _qwen3,
    "moonvit": _moonvit,
    "llama4": _llama4,
    "siglip": _siglip,
    "gemma4": _gemma4,
    "pixtral": _pixtral,
    "glm4v": _glm4v,
    "minimax": _minimax,
    "step": _step,
}
"""How towers are described, by the word of a family."""
