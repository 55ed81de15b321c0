"""What sees in a multimodal model, in the words of its `vision_config`."""

from typing import Any

from stepsim.files.models.fields import Fields, Keys, families
from stepsim.workload.model.architecture import (
    Activation,
    DenseMlp,
    GroupedAttention,
    Layer,
    NormKind,
    Tower,
)


def read_tower(kind: str, outer: Fields, hidden: int) -> tuple[Tower | None, Keys]:
    """The tower of a configuration, whose decoder is `hidden` wide, and what its class fixes of it.

    None where neither the configuration nor its class says. Raises WorkloadError naming the key at
    fault.
    """
    inside = outer.inside("vision_config")
    form = dict(families().tower.get(kind, {}))
    usual, keys = form.pop("usual", {}), form.pop("hidden", ["hidden_size"])
    if not kind or not (inside.values or usual):
        return None, {}
    fields = _Seeing(place=inside.place, values=inside.values, defaults=usual, outer=outer)
    wide = fields.count(*keys)
    said: Keys = getattr(fields, kind)(wide, hidden)
    return fields.tower(wide, **form, **said), fields.assumed


def _merger(inner: int, out: int) -> tuple[tuple[int, int, bool], ...]:
    """Two products with a bias each: merged patches to their own width, then to the decoder's."""
    return (inner, inner, True), (inner, out, True)


class _Seeing(Fields, kw_only=True):
    """Keys of a tower, and those of the whole configuration, `outer`.

    There is a method for each kind, as `families.toml` calls it: it takes the widths of the tower
    and of the decoder, and gives the fields of the tower that its configuration says, and the
    `width` of its MLPs if that is other.
    """

    outer: Fields

    def tower(
        self,
        hidden: int,
        *,
        gated: bool = False,
        bias: bool = True,
        norms: int = 2,
        width: int | None = None,
        frames: int = 1,
        **more: Any,
    ) -> Tower:
        """A tower of equal layers: attention to all patches and an MLP; `more` are further fields.

        Norms are RMS norms where MLPs are gated.
        """
        said, patch = self.part("tower"), self.part("patch", frames=frames)
        layer = Layer(
            attention=GroupedAttention(
                **said,
                head_dim=self.count("head_dim", default=hidden // said["heads"]),
                bias=bias,
                output_bias=bias,
            ),
            mlp=DenseMlp(
                width=width or self.count("TOWER_WIDTH"),
                activation=Activation.SWIGLU if gated else Activation.GELU,
                bias=bias,
            ),
            norms=norms,
        )
        return Tower(
            hidden=hidden,
            depth=self.count("TOWER_LAYERS"),
            layer=layer,
            norm=NormKind.RMS if gated else NormKind.LAYER,
            patch=patch["channels"] * patch["frames"] * patch["side"] ** 2,
            **more,
        )

    def _patches(self) -> int:
        """Patches of an image."""
        return (self.count("image_size") // self.count("patch_size")) ** 2

    def qwen3(self, hidden: int, decoder: int) -> Keys:
        """Of Qwen3-VL and Qwen3.5: learned positions, and a merger more for each deep stack."""
        merged = self.count("spatial_merge_size") ** 2
        out = self.count("out_hidden_size", default=decoder)
        stacks = len(self.items("deepstack_visual_indexes") or [])
        return {
            "positions": self.count("num_position_embeddings", default=0),
            "merged": merged,
            "products": _merger(hidden * merged, out) * (1 + stacks),
            "others": 2 * hidden * (1 + merged * stacks),
        }

    def qwen2(self, hidden: int, decoder: int) -> Keys:
        """Of Qwen2-VL, without positions and stacks: its `hidden_size` is that of the decoder."""
        said = self.qwen3(hidden, self.count("hidden_size", default=decoder))
        return {**said, "width": int(self.number("mlp_ratio", 4.0) * hidden)}

    def qwen2_5(self, hidden: int, decoder: int) -> Keys:
        """Of Qwen2.5-VL, without positions and stacks: RMS norms and a gated MLP."""
        return {**self.qwen3(hidden, decoder), "others": hidden}

    def moonvit(self, hidden: int, decoder: int) -> Keys:
        """Of Kimi: positions on a grid, and a projector of 4 patches."""
        rows = self.count("init_pos_emb_height", "pos_emb_height", default=64)
        columns = self.count("init_pos_emb_width", "pos_emb_width", default=64)
        sides = self.items("merge_kernel_size") or [2, 2]
        if not all(type(side) is int and side > 0 for side in sides):
            raise self.wrong(sides, "whole numbers of at least 1", "merge_kernel_size")
        merged = sides[0] * sides[-1]
        return {
            "positions": rows * columns,
            "merged": merged,
            "products": _merger(hidden * merged, decoder),
            "others": 4 * hidden,
        }

    def llama4(self, hidden: int, decoder: int) -> Keys:
        """Of Llama 4: a class token, four patches shuffled to one, an adapter and a projector."""
        merged = round(1 / self.number("pixel_shuffle_ratio", 0.5)) ** 2
        inner, middle = self.count("projector_input_dim"), self.count("projector_output_dim")
        return {
            "positions": self._patches() + 1,
            "merged": merged,
            "products": (
                (self.count("intermediate_size"), inner, False),
                (inner, middle, False),
                (self.count("vision_output_dim"), decoder, False),
            ),
            "others": 5 * hidden,
        }

    def siglip(self, hidden: int, decoder: int) -> Keys:
        """Of Gemma 3: SigLIP, whose patches are averaged to a fixed number of tokens."""
        tokens = self.outer.count("mm_tokens_per_image", default=256)
        width = self.count("intermediate_size")
        pooled = 4 * hidden * hidden + 2 * hidden * width + width + 8 * hidden
        head = pooled if self.flag("vision_use_head", default=True) else 0
        return {
            "positions": self._patches(),
            "merged": max(self._patches() // tokens, 1),
            "products": ((hidden, decoder, False),),
            "others": 3 * hidden + head,
        }

    def gemma4(self, hidden: int, decoder: int) -> Keys:
        """Of Gemma 4: four norms a layer, a gated MLP, positions by row and column."""
        head = self.count("head_dim", default=hidden // self.count("TOWER_HEADS"))
        return {
            "positions": 2 * self.count("position_embedding_size", default=10240),
            "merged": self.count("pooling_kernel_size", default=3) ** 2,
            "products": ((hidden, decoder, False),),
            "others": 2 * head * self.count("TOWER_LAYERS") + 2 * hidden * self.flag("standardize"),
        }

    def pixtral(self, hidden: int, decoder: int) -> Keys:
        """Of Mistral 3: RMS norms, a gated MLP, and a projector of 4 patches."""
        merged = self.outer.count("spatial_merge_size", default=2) ** 2
        bias = self.outer.flag("multimodal_projector_bias")
        return {
            "merged": merged,
            "products": (
                (hidden * merged, hidden, False),
                (hidden, decoder, bias),
                (decoder, decoder, bias),
            ),
            "others": 2 * hidden,
        }

    def glm4v(self, hidden: int, decoder: int) -> Keys:
        """Of GLM-4.5V: a gated MLP, a convolution that merges 4 patches, and a gated merger."""
        merged = self.count("spatial_merge_size") ** 2
        out = self.count("out_hidden_size", default=decoder)
        wide = self.count("intermediate_size")
        return {
            "width": out,
            "positions": self._patches(),
            "merged": merged,
            "products": (
                (hidden * merged, out, True),
                (out, out, False),
                *(((out, wide, False),) * 3),
            ),
            "others": 2 * out + 2 * hidden,
        }

    def minimax(self, hidden: int, decoder: int) -> Keys:
        """Of MiniMax-M3: a projector of each patch, and another of 4 of them."""
        merged = self.count("spatial_merge_size", default=2) ** 2
        inner = self.outer.count("projector_hidden_size", default=decoder)
        return {
            "merged": merged,
            "products": (
                *((hidden, inner, True), (inner, decoder, True)),
                *((merged * decoder, inner, True), (inner, decoder, True)),
            ),
            "others": 2 * hidden,
        }

    def step(self, hidden: int, decoder: int) -> Keys:
        """Of Step-3.7: two convolutions of 3 x 3 that halve both sides, and a projector."""
        return {
            "width": int(hidden * self.number("mlp_ratio", 8960 / 1536)),
            "positions": self._patches(),
            "merged": 16,
            "products": (
                (9 * hidden, 2 * hidden, True),
                (18 * hidden, 4 * hidden, True),
                (4 * hidden, decoder, False),
            ),
            "others": 2 * hidden,
        }
