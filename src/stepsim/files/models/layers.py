"""What each layer of a configuration has: what mixes its tokens, and its MLP or experts.

A kind of mixer is `full` or `sliding` attention, `chunked` attention, or the mixer of the family,
by all the keys in which configurations say so.
"""

import re
from enum import StrEnum
from typing import Any

from stepsim.files.models.fields import (
    Reading,
    WindowRule,
    spelled,
)
from stepsim.workload.model.architecture import DenseMlp, ExpertMlp


class Kind(StrEnum):
    """What mixes tokens in a layer."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    SHARED = "shared choice"
    MIXER = "mixer"


class Kinds(Reading, kw_only=True):
    """Reads what mixes tokens in each of the layers."""

    def kinds(self, count: int) -> list[Kind]:
        """The kind of each layer; raises WorkloadError where a list does not fit the layers."""
        kinds = (
            self._by_types(count)
            or self._by_lists(count)
            or self._by_period(count)
            or self._by_pattern(count)
            or self._by_family(count)
        )
        self.pass_over("where_kinds")  # the first of them counts, as in transformers
        return self._choosing(kinds) if self.family.indexer else kinds

    def _by_types(self, count: int) -> list[Kind] | None:
        """Names of a list: `layer_types`, or `layers_block_type`."""
        spare = max(self.count(name, default=0) for name in spelled("PREDICTED"))
        for name in ("layer_types", "layers_block_type"):
            types = self.listed(name, count, spare=spare)
            if types is not None:
                return [self._named(name, item) for item in types]
        return None

    def _choosing(self, kinds: list[Kind]) -> list[Kind]:
        """With the layers that read what an earlier one chose: GLM-5's pattern, or its period."""
        count = len(kinds)
        pattern = self.raw("indexer_types", "index_topk_pattern")
        nth = self.count("index_topk_freq", default=1)
        skipped = self.count("index_skip_topk_offset", default=2, least=0)
        if pattern is None:
            shared = [max(n - skipped + 1, 0) % nth != 0 for n in range(count)]
        else:
            if not isinstance(pattern, str | list) or len(pattern) < count:
                expected = f"F or S for each of {count} layers"
                raise self.wrong(pattern, expected, "indexer_types", "index_topk_pattern")
            shared = [item in ("S", "shared") for item in pattern[:count]]
        return [Kind.SHARED if s else kind for s, kind in zip(shared, kinds, strict=True)]

    def _named(self, name: str, said: Any) -> Kind:
        kind = next((each for each in Kind if said in spelled(f"words_{each}")), None)
        known = {Kind.SLIDING: "sliding_window", Kind.CHUNKED: "attention_chunk_size"}
        lacks = kind in known and not self.has(known[kind])
        mixes = bool(self.family.mixer) or self.has("linear_num_value_heads")
        if kind is None or lacks or (kind is Kind.MIXER and not mixes):
            expected = "full_attention, or sliding_attention beside a sliding_window"
            raise self.wrong(said, expected, name)
        return kind

    def _by_lists(self, count: int) -> list[Kind] | None:
        """Lists of 0 and 1: MiniMax (1 is attention), MiMo (1 slides); or numbers of layers.

        These have attention: those of Kimi begin with 1.
        """
        lists = (
            ("attn_type_list", Kind.MIXER, Kind.FULL),
            ("hybrid_layer_pattern", Kind.FULL, Kind.SLIDING),
        )
        for name, zero, one in lists:
            numbers = self.listed(name, count)
            if numbers is not None:
                return [one if number else zero for number in numbers]
        chosen = self.items("sparse_attention_freq")
        if chosen is not None and len(chosen) >= count:
            return [Kind.MIXER if number else Kind.FULL for number in chosen[:count]]
        for name, first in (
            ("linear_attn_config.full_attn_layers", 1),
            ("attn_layer_indices", 0),
            ("full_attn_idxs", 0),
            ("hybrid_layer_ids", 0),
        ):
            members = self.items(name)
            if members is not None:
                full = set(map(str, members))
                return [_full(str(layer + first) in full) for layer in range(count)]
        return None

    def _by_period(self, count: int) -> list[Kind] | None:
        """Attention in every nth layer: Jamba, Qwen3-Next, Ring."""
        for name in ("attn_layer_period", "full_attention_interval", "layer_group_size"):
            if nth := self.some(name):
                offset, whole = -1, count
                if name == "attn_layer_period":
                    offset = self.count("attn_layer_offset", default=0)
                if name == "layer_group_size":  # layers beyond the last whole group have attention
                    whole = count // nth * nth
                return [_full((n - offset) % nth == 0 or n >= whole) for n in range(count)]
        return None

    def _by_pattern(self, count: int) -> list[Kind] | None:
        """Sliding windows in all but every nth layer, as a number or as `LLLG`."""
        if self.some("attention_chunk_size"):
            nth = self.count("no_rope_layer_interval", default=4)
            rope = self.items("no_rope_layers") or []
            if len(rope) != count:
                rope = [(n + 1) % nth for n in range(count)]
            return [Kind.CHUNKED if item else Kind.FULL for item in rope]
        if self.family.always_mixes or self.family.mixer == "mamba2":
            return [Kind.MIXER] * count
        pattern = self.raw("sliding_window_pattern")
        slides = self.has("sliding_window")
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            local = [slides and pattern[n % len(pattern)] == "L" for n in range(count)]
            if len(pattern) > 1:
                local[-1] = False  # the last layer sees all, as Exaone has it
        elif slides and self.family.window is WindowRule.PATTERN:
            names = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
            nth = self.count(*names, "global_attn_every_n_layers", default=self.family.nth)
            local = [(n + 1) % nth > 0 for n in range(count)]
        else:
            return None
        return [Kind.SLIDING if each else Kind.FULL for each in local]

    def _by_family(self, count: int) -> list[Kind]:
        """What the family's code says where no key does."""
        rule = self.family.window
        on = self.flag("use_sliding_window", default=rule is not WindowRule.UPPER)
        first = self.count("max_window_layers", default=0)
        window = self.some("sliding_window", least=0) if on else None
        layers = {
            WindowRule.ALL: range(count),
            WindowRule.EVEN: range(0, count, 2),
            WindowRule.UPPER: range(first, count),
        }
        sliding = layers.get(rule, range(0)) if window else range(0)
        return [Kind.SLIDING if layer in sliding else Kind.FULL for layer in range(count)]


def _full(attends: bool) -> Kind:
    return Kind.FULL if attends else Kind.MIXER


_SPARSE = {"sparse": True, "moe": True, "dense": False, "mlp": False}


class Feeding(Reading, kw_only=True):
    """Reads the MLP of each layer."""

    def dense(self, *, twice: bool = False) -> DenseMlp:
        """A dense MLP, as wide as said, or `twice` as wide."""
        ratio = self.some("expansion_ratio")
        own = ("intermediate_size_mlp", "dense_intermediate_size")
        width = self.some(*own) or self.some("WIDTH")
        if width is None and (ratio or not self.family.gated):
            width = (ratio or 4) * self.hidden
        if self.family.shared_is_dense and (width is None or not self.uniform("EXPERTS")):
            width = self.count("SHARED_WIDTH")
        width = width or self.count("WIDTH")
        multiple = self.count("block_multiple_of", default=1)
        factor = self.number("block_ffn_dim_multiplier", 1.0)
        if self.flag("block_auto_adjust_ff_dim"):  # of LFM2: two thirds, rounded up
            width = -(-int(factor * int(2 * width / 3)) // multiple) * multiple
        return DenseMlp(
            width=width * (2 if twice else 1),
            activation=self.activation(),
            bias=self.biased("mlp_bias", self.family.mlp_bias),
        )

    # which layers have experts

    def sparse(self, count: int) -> list[bool]:
        """Whether each layer has experts."""
        self.pass_over("where_experts")
        if (self.uniform("EXPERTS") or 0) < 2 or self.values.get("enable_moe_block") is False:
            self.pass_over("EXPERTS", "TOP_K", "EXPERT_WIDTH")
            return [False] * count
        listed = self._listed_sparse(count)
        if listed is not None:
            return listed
        first = self.count(
            "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0
        )
        last = self.uniform("moe_layer_end_index", least=-1)
        dense = self.items("mlp_only_layers") or []
        names = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
        nth, offset = self.count(*names, default=1), -1
        if every := self.some("moe_layer_freq"):
            nth, offset = every, 0
        elif every := self.some("expert_layer_period"):
            nth, offset = every, self.count("expert_layer_offset", default=0)
        return [
            first <= layer <= (count if last is None or last < 0 else last)
            and layer not in dense
            and (layer - offset) % nth == 0
            for layer in range(count)
        ]

    def _listed_sparse(self, count: int) -> list[bool] | None:
        """Experts by a list: words, flags, or numbers of layers."""
        frequency = self.raw("moe_layer_freq")
        if isinstance(frequency, list):
            # experts beyond its end
            return [*map(bool, frequency[:count]), *[True] * (count - len(frequency))]
        for name in ("mlp_layer_types", "is_moe_layer"):
            items = self.listed(name, count, spare=64)
            if items is not None:
                return [self._is_sparse(name, item) for item in items]
        members = self.raw("moe_layers", "moe_layers_enum")
        if isinstance(members, str | list):
            chosen = re.findall(r"\d{1,6}", str(members))
            return [str(layer) in chosen for layer in range(count)]
        return None

    def _is_sparse(self, name: str, item: Any) -> bool:
        if isinstance(item, int):
            return bool(item)
        if item not in [*_SPARSE]:  # a list of JSON is no key
            raise self.wrong(item, f"one of {', '.join(_SPARSE)}", name)
        return _SPARSE[item]

    # experts

    def experts(self) -> ExpertMlp:
        """The experts of a layer."""
        family = self.family
        self.pass_over("WIDTH")
        width = self.uniform("EXPERT_WIDTH") or self.count("WIDTH")
        shared_width = self._shared_width(width)
        return ExpertMlp(
            experts=self.uniform("EXPERTS", least=1) or 1,
            top_k=self._top_k(),
            width=width,
            shared_width=shared_width,
            activation=self.activation(),
            bias=self.biased("mlp_bias", self.family.mlp_bias),
            router_bias=family.router_bias,
            clamped=family.clamps,
            shared_gate=family.shared_gate and shared_width > 0,
            groups=self.or_one("n_group", "num_expert_group"),
            token_groups=self.or_one("topk_group"),
            latent=self.some("moe_latent_size"),
        )

    def _top_k(self) -> int:
        """Experts of a token; of identity ones among them a share computes nothing."""
        said = self.uniform("TOP_K", least=1) or self.count("TOP_K")
        idle = self.count("zero_expert_num", default=0)
        if not idle:
            return said
        real = self.uniform("EXPERTS", least=1) or 1
        chosen = max(round(said * real / (real + idle)), 1)
        self.note(
            f"{idle} of {real + idle} experts change nothing: a token counts as going to {chosen} "
            f"of the others, of {said}"
        )
        return chosen

    def _shared_width(self, width: int) -> int:
        """Width of all shared experts together."""
        number = self.uniform("SHARED") or 0
        self.pass_over("dense_intermediate_size", "shared_expert_rank")
        said = self.uniform("SHARED_WIDTH")
        shared = number * width if said is None else said
        if self.has("interleave_moe_layer_step"):
            shared = width
        self.some("intermediate_size_mlp")
        if self.family.dense_beside:
            shared = self.count("WIDTH")
        return shared
