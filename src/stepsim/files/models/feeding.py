"""MLPs and experts of each layer, and which layers have which."""

import re
from typing import Any

from stepsim.files.models.fields import Fields, keys
from stepsim.files.models.reading import (
    EXPERT_WIDTH,
    EXPERTS,
    SHARED,
    SHARED_WIDTH,
    TOP_K,
    WIDTH,
    Reading,
)
from stepsim.workload.model.architecture import DenseMlp, ExpertMlp

_SPARSE = {"sparse": True, "moe": True, "dense": False, "mlp": False}


class Feeding(Reading, kw_only=True):
    """Reads the MLP of each layer."""

    def dense(self, *, twice: bool = False) -> DenseMlp:
        """A dense MLP, as wide as said, or `twice` as wide."""
        ratio = self.some("expansion_ratio")
        own = ("intermediate_size_mlp", "dense_intermediate_size")
        width = self.some(*own) or self.some(*WIDTH)
        if width is None and self.family.shared_is_dense:
            width = self.some(*SHARED_WIDTH)
        if width is None and (ratio or not self.family.gated):
            width = (ratio or 4) * self.hidden
        width = width or self.count(*WIDTH)
        if self.family.shared_is_dense and not self._experts_number():
            width = self.count(*SHARED_WIDTH)
        return DenseMlp(
            width=self._adjusted(width) * (2 if twice else 1),
            activation=self.activation(),
            bias=self._mlp_bias(),
        )

    def _adjusted(self, width: int) -> int:
        """Two thirds of the width, times a factor, rounded up, where LFM2's keys say so."""
        multiple = self.count("block_multiple_of", default=1)
        factor = self.number("block_ffn_dim_multiplier", 1.0)
        if not self.flag("block_auto_adjust_ff_dim"):
            return width
        return -(-int(factor * int(2 * width / 3)) // multiple) * multiple

    def _mlp_bias(self) -> bool:
        family = self.family
        if family.bias_key:
            return self.flag(family.bias_key, family.mlp_bias)
        if self.has("no_bias"):
            return not self.flag("no_bias", default=True)
        return self.flag("mlp_bias", family.mlp_bias)

    # which layers have experts

    def _experts_number(self) -> int:
        ffn = self.inside("ffn_config")
        return self.uniform(self, *EXPERTS) or self.uniform(ffn, *EXPERTS) or 0

    def uniform(self, fields: Fields, *names: str, least: int = 0) -> int | None:
        """A whole number, or a list of one for every layer that say the same; None for none.

        Raises WorkloadError where layers differ.
        """
        said = fields.raw(*names)
        if not isinstance(said, list):
            return fields.some(*names, least=least)
        if not said or any(item != said[0] for item in said) or not isinstance(said[0], int):
            expected = "the same whole number for all layers"
            raise fields.wrong(fields.name_of(*names), said, expected)
        return int(said[0])

    def sparse(self, count: int) -> list[bool]:
        """Whether each layer has experts."""
        self.read.update(keys()["experts"])
        if self._experts_number() < 2 or self.values.get("enable_moe_block") is False:
            self.read.update((*EXPERTS, *TOP_K, *EXPERT_WIDTH))
            return [False] * count
        listed = self._listed_sparse(count)
        if listed is not None:
            return listed
        first = self.count(
            "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0
        )
        last = self.uniform(self, "moe_layer_end_index", least=-1)
        dense = self.items("mlp_only_layers") or []
        names = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
        every = self.count(*names, default=1)
        if self.has("moe_layer_freq"):
            every = self.count("moe_layer_freq")
            return [layer >= first and layer % every == 0 for layer in range(count)]
        if self.has("expert_layer_period"):
            every = self.count("expert_layer_period")
            offset = self.count("expert_layer_offset", default=0)
            return [layer % every == offset % every for layer in range(count)]
        return [
            first <= layer <= (count if last is None or last < 0 else last)
            and layer not in dense
            and (layer + 1) % every == 0
            for layer in range(count)
        ]

    def _listed_sparse(self, count: int) -> list[bool] | None:
        """Experts by a list: words, flags, or numbers of layers."""
        frequency = self.raw("moe_layer_freq")
        if isinstance(frequency, list):
            padded = [
                *frequency[:count],
                *[True] * (count - len(frequency)),
            ]  # experts beyond its end
            return [bool(item) for item in padded]
        for name in ("mlp_layer_types", "is_moe_layer"):
            items = self.listed(name, count, spare=64)
            if items is not None:
                return [_is_sparse(self, name, item) for item in items]
        members = self.raw("moe_layers", "moe_layers_enum")
        if isinstance(members, str):
            members = [int(number) for number in re.findall(r"\d{1,6}", members)]
        if isinstance(members, list):
            return [layer in members for layer in range(count)]
        return None

    def dense_beyond(self, count: int) -> bool:
        """Whether a layer after the last one would have no experts: Step-3.5 counts them on."""
        members = self.raw("moe_layers_enum")
        return isinstance(members, str) and str(count) not in re.findall(r"\d{1,6}", members)

    # experts

    def experts(self) -> ExpertMlp:
        """The experts of a layer."""
        family = self.family
        ffn = self.inside("ffn_config")
        fields = ffn if ffn.has(*EXPERTS) else self
        own = self.uniform(fields, *EXPERT_WIDTH)
        self.read.update(WIDTH)
        width = own or fields.count(*WIDTH)
        return ExpertMlp(
            experts=self.uniform(fields, *EXPERTS, least=1) or 1,
            top_k=self._top_k(fields),
            width=width,
            shared_width=self._shared_width(fields, width),
            activation=self.activation(),
            bias=self._mlp_bias(),
            router_bias=family.router_bias,
            clamped=family.clamps,
            shared_gate=family.shared_gate and self._shared_width(fields, width) > 0,
            groups=_or_one(fields, "n_group", "num_expert_group"),
            token_groups=_or_one(fields, "topk_group"),
            latent=fields.some("moe_latent_size"),
        )

    def _top_k(self, fields: Fields) -> int:
        """Experts of a token; of identity ones among them a share computes nothing."""
        said = self.uniform(fields, *TOP_K, least=1) or fields.count(*TOP_K)
        idle = fields.count("zero_expert_num", default=0)
        fields.read.add("zero_expert_type")
        if not idle:
            return said
        real = self.uniform(fields, *EXPERTS, least=1) or 1
        chosen = max(round(said * real / (real + idle)), 1)
        self.note(
            f"{idle} of {real + idle} experts change nothing: a token counts as going to {chosen} "
            f"of the others, of {said}"
        )
        return chosen

    def _shared_width(self, fields: Fields, width: int) -> int:
        """Width of all shared experts together."""
        number = self.uniform(fields, *SHARED) or 0
        fields.read.update(("dense_intermediate_size", "shared_expert_rank"))
        said = self.uniform(fields, *SHARED_WIDTH)
        shared = number * width if said is None else said
        if fields.has("interleave_moe_layer_step"):
            shared = width
        fields.some("intermediate_size_mlp")
        if self.family.dense_beside:
            shared = fields.count(*WIDTH)
        return shared


def _or_one(fields: Fields, *names: str) -> int:
    """A whole number, or 1 where it is false or left out."""
    return fields.count(*names, default=1) if fields.raw(*names) else 1


def _is_sparse(fields: Fields, name: str, item: Any) -> bool:
    if isinstance(item, bool | int):
        return bool(item)
    if item not in _SPARSE:
        raise fields.wrong(name, item, f"one of {', '.join(_SPARSE)}")
    return _SPARSE[item]
