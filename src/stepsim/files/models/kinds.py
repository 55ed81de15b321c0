"""What mixes the tokens of each layer, by all the keys in which configurations say so.

A kind is `full` or `sliding` attention, `chunked` attention, or the mixer of the family.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from stepsim.files.models.families import WindowRule
from stepsim.files.models.fields import keys
from stepsim.files.models.reading import PREDICTED, Reading


class Kind(StrEnum):
    """What mixes tokens in a layer."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    SHARED = "shared choice"
    MIXER = "mixer"


_NAMES = {
    "full_attention": Kind.FULL,
    "attention": Kind.FULL,
    "global_attention": Kind.FULL,
    "global": Kind.FULL,
    "indexed_attention": Kind.FULL,
    "sliding_attention": Kind.SLIDING,
    "local_attention": Kind.SLIDING,
    "sliding_window_attention": Kind.SLIDING,
    "chunked_attention": Kind.CHUNKED,
    "linear_attention": Kind.MIXER,
    "mamba": Kind.MIXER,
    "mamba2": Kind.MIXER,
    "conv": Kind.MIXER,
    "hybrid": Kind.MIXER,
    "minimax_m3_sparse": Kind.MIXER,
}
"""Kinds by the words of `layer_types` and of `layers_block_type`."""


class Kinds(Reading, kw_only=True):
    """Reads what mixes tokens in each of the layers."""

    def kinds(self, count: int) -> list[Kind]:
        """The kind of each layer; raises WorkloadError where a list does not fit the layers."""
        rules: Sequence[Callable[[int], list[Kind] | None]] = (
            self._by_types,
            self._by_numbers,
            self._by_members,
            self._by_period,
            self._by_pattern,
            self._by_family,
        )
        kinds = next(kinds for rule in rules if (kinds := rule(count)) is not None)
        self.read.update(keys()["kinds"])  # the first of them counts, as in transformers
        return kinds

    def _by_types(self, count: int) -> list[Kind] | None:
        """Names of a list: `layer_types`, or `layers_block_type`."""
        spare = max(self.count(name, default=0) for name in PREDICTED)
        for name in ("layer_types", "layers_block_type"):
            types = self.listed(name, count, spare=spare)
            if types is not None:
                return self._choosing([self._named(name, item) for item in types])
        return self._choosing([Kind.FULL] * count) if self.family.indexer else None

    def _choosing(self, kinds: list[Kind]) -> list[Kind]:
        """With the layers that read what an earlier one chose: GLM-5's pattern, or its period."""
        count = len(kinds)
        if not self.family.indexer:
            return kinds
        pattern = self.raw("indexer_types", "index_topk_pattern")
        nth = self.count("index_topk_freq", default=1)
        skipped = self.count("index_skip_topk_offset", default=2, least=0)
        if pattern is None:
            shared = [max(n - skipped + 1, 0) % nth != 0 for n in range(count)]
        else:
            if not isinstance(pattern, str | list) or len(pattern) < count:
                expected = f"F or S for each of {count} layers"
                raise self.wrong("index_topk_pattern", pattern, expected)
            shared = [item in ("S", "shared") for item in pattern[:count]]
        return [Kind.SHARED if s else kind for s, kind in zip(shared, kinds, strict=True)]

    def _named(self, name: str, said: Any) -> Kind:
        kind = _NAMES.get(said) if isinstance(said, str) else None
        known = {Kind.SLIDING: "sliding_window", Kind.CHUNKED: "attention_chunk_size"}
        lacks = kind in known and not self.has(known[kind])
        mixes = bool(self.family.mixer) or self.has("linear_num_value_heads")
        if kind is None or lacks or (kind is Kind.MIXER and not mixes):
            expected = "full_attention, or sliding_attention beside a sliding_window"
            raise self.wrong(name, said, expected)
        return kind

    def _by_numbers(self, count: int) -> list[Kind] | None:
        """Lists of 0 and 1: MiniMax (1 is attention), MiMo (1 slides)."""
        lists = (
            ("attn_type_list", Kind.MIXER, Kind.FULL),
            ("hybrid_layer_pattern", Kind.FULL, Kind.SLIDING),
        )
        for name, zero, one in lists:
            numbers = self.listed(name, count)
            if numbers is not None:
                return [one if number else zero for number in numbers]
        chosen = self.inside("sparse_attention_config").items("sparse_attention_freq")
        if chosen is not None and len(chosen) >= count:
            return [Kind.MIXER if number else Kind.FULL for number in chosen[:count]]
        return None

    def _by_members(self, count: int) -> list[Kind] | None:
        """Numbers of the layers that have attention: those of Kimi begin with 1."""
        own = self.inside("linear_attn_config")
        for table, name, first in (
            (own, "full_attn_layers", 1),
            (self, "attn_layer_indices", 0),
            (self, "full_attn_idxs", 0),
            (self, "hybrid_layer_ids", 0),
        ):
            members = table.items(name)
            if members is not None:
                full = set(map(str, members))
                numbers = (str(layer + first) for layer in range(count))
                return [Kind.FULL if number in full else Kind.MIXER for number in numbers]
        return None

    def _by_period(self, count: int) -> list[Kind] | None:
        """Attention in every nth layer: Qwen3-Next, Ring, Jamba."""
        if self.has("attn_layer_period"):
            period = self.count("attn_layer_period")
            offset = self.count("attn_layer_offset", default=0)
            return [_full(layer % period == offset % period) for layer in range(count)]
        if self.has("full_attention_interval"):
            nth = self.count("full_attention_interval")
            return [_full((layer + 1) % nth == 0) for layer in range(count)]
        if self.has("layer_group_size"):
            nth = self.count("layer_group_size")
            whole = count // nth * nth  # layers beyond the last whole group have attention
            return [_full((n + 1) % nth == 0 or n >= whole) for n in range(count)]
        return None

    def _by_pattern(self, count: int) -> list[Kind] | None:
        """Sliding windows in all but every nth layer, as a number or as `LLLG`."""
        if self.some("attention_chunk_size"):
            nth = self.count("no_rope_layer_interval", default=4)
            rope = self.items("no_rope_layers") or []
            if len(rope) == count:
                return [Kind.CHUNKED if item else Kind.FULL for item in rope]
            return [Kind.FULL if (n + 1) % nth == 0 else Kind.CHUNKED for n in range(count)]
        if self.family.always_mixes or self.family.mixer == "mamba2":
            return [Kind.MIXER] * count
        pattern = self.raw("sliding_window_pattern")
        slides = self.has("sliding_window")
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            local = [slides and pattern[n % len(pattern)] == "L" for n in range(count)]
            if len(pattern) > 1:
                local[-1] = False  # the last layer sees all, as Exaone has it
            return [Kind.SLIDING if each else Kind.FULL for each in local]
        if slides and self.family.window is WindowRule.PATTERN:
            names = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
            nth = self.count(*names, "global_attn_every_n_layers", default=self.family.nth)
            return [Kind.FULL if (n + 1) % nth == 0 else Kind.SLIDING for n in range(count)]
        return None

    def _by_family(self, count: int) -> list[Kind]:
        """What the family's code says where no key does."""
        rule = self.family.window
        on = self.flag("use_sliding_window", rule is not WindowRule.UPPER)
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
