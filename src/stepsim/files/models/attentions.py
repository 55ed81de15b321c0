"""Attention of each layer, in the words of configurations and by what a family's code fixes."""

from collections.abc import Iterator
from typing import Any

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.files.models.fields import Fields
from stepsim.files.models.kinds import Kind
from stepsim.files.models.mixers import Mixers
from stepsim.files.models.reading import HEADS, KV_HEADS
from stepsim.workload.model.architecture import (
    Attention,
    GroupedAttention,
    LatentAttention,
    QkNorm,
)
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.sparse_attention import SparseLatentAttention

_INDEXED, _POOLED = 4, 128  # `_COMPRESS_RATIO_TO_LAYER_TYPE` of transformers
_RATIOS = {  # names of layers of DeepSeek-V4 in newer releases of transformers
    "sliding_attention": 0,
    "compressed_sparse_attention": _INDEXED,
    "heavily_compressed_attention": _POOLED,
}


class Attentions(Mixers, kw_only=True):
    """Reads the attention of a layer of some kind."""

    def attention(
        self, hidden: int, kind: Kind, *, layer: int = 0, borrows: bool = False
    ) -> Attention:
        """Attention of the layer of this number; one that `borrows` reads an earlier one's keys.

        Raises WorkloadError naming the key at fault.
        """
        if kind is Kind.MIXER:
            return self.mixer(hidden)
        fields, family = self.fields, self.family
        heads = fields.count(*HEADS)
        if fields.has("kv_lora_rank"):
            return self._latent(heads, chooses=kind is not Kind.SHARED)
        bias, output_bias = self._attention_bias()
        normed = not family.qk_norm_key or fields.flag(family.qk_norm_key, default=False)
        if (norm := fields.text("qk_norm_type", default="per_layer")) != "per_layer":
            raise WorkloadError(bad_value(fields.place, "qk_norm_type", norm, "per_layer"))
        wide = kind is Kind.FULL and fields.has("global_head_dim")
        shares = fields.flag("attention_k_eq_v", default=False)
        heads, kv_heads, head_dim, value_dim = self._sizes(hidden, heads, kind, layer)
        if wide:
            head_dim = fields.count("global_head_dim")
            kv_heads = (fields.some("num_global_key_value_heads") if shares else None) or kv_heads
        return GroupedAttention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=value_dim,
            shares_values=wide and shares,
            window=self._window(kind),
            bias=bias,
            output_bias=output_bias,
            qk_norm=family.qk_norm if normed else QkNorm.NONE,
            sinks=self._has_sinks(kind),
            gated=self._gates("full"),
            head_gates=self._gates("heads"),
            borrows=borrows,
            query_rank=fields.some("share_q_dim"),
        )

    def grouped(self, hidden: int) -> GroupedAttention:
        """Grouped attention beside a state; raises WorkloadError for any other."""
        attention = self.attention(hidden, Kind.FULL)
        if not isinstance(attention, GroupedAttention):
            raise WorkloadError(f"{self.fields.place}: attention beside a state: expected grouped")
        return attention

    def _latent(self, heads: int, *, chooses: bool) -> Attention:
        fields = self.fields
        fields.read.update((*KV_HEADS, "head_dim", "qk_head_dim", "mla_use_nope"))
        latent = LatentAttention(
            heads=heads,
            query_rank=fields.some("q_lora_rank", least=0) or None,
            kv_rank=fields.count("kv_lora_rank"),
            nope_dim=fields.count("qk_nope_head_dim"),
            rope_dim=fields.count("qk_rope_head_dim", least=0),
            value_dim=fields.count("v_head_dim"),
            bias=self._attention_bias()[0] and self.family.output_follows,
            head_gates=self.family.head_gates,
        )
        if not self.family.indexer:
            return latent
        return SparseLatentAttention(
            heads=latent.heads, latent=latent, indexer=self.indexer(ratio=1), chooses=chooses
        )

    def indexer(self, ratio: int) -> Indexer:
        """An indexer whose keys stand for `ratio` tokens."""
        fields = self.fields
        return Indexer(
            heads=fields.count("index_n_heads"),
            dim=fields.count("index_head_dim"),
            top_k=fields.count("index_topk"),
            ratio=ratio,
        )

    # sizes

    def _sizes(
        self, hidden: int, heads: int, kind: Kind, layer: int
    ) -> tuple[int, int, int, int | None]:
        """Heads, heads of keys and values, and widths of a key and of a value of a layer."""
        fields = self.fields
        own = fields.items("num_attention_heads_per_layer")
        if own is not None:
            heads = _entry(fields, "num_attention_heads_per_layer", own, layer)
        kv_heads, head_dim = self._kv_heads(heads), self.head_dim(hidden, heads)
        value_dim = fields.some("v_head_dim")
        layers = fields.inside("per_layer_config").values
        own_layer = Fields(place=fields.place, values=layers.get(f"{layer:02d}") or {})
        head_dim = own_layer.count("head_dim", default=head_dim)
        kv_heads = own_layer.count(*KV_HEADS, default=kv_heads)
        other = fields.inside("attention_other_setting")
        sliding = kind is Kind.SLIDING
        names = ("swa_num_attention_heads", "num_sliding_attention_heads")
        swa_heads, swa_kv = fields.some(*names), fields.some("swa_num_key_value_heads")
        swa_dim, swa_value = fields.some("swa_head_dim"), fields.some("swa_v_head_dim")
        if sliding:
            heads = swa_heads or other.count("num_attention_heads", default=heads)
            kv_heads = swa_kv or other.count("num_attention_groups", default=kv_heads)
            head_dim = swa_dim or other.count("head_dim", default=head_dim)
            value_dim = swa_value or value_dim
        return heads, kv_heads, head_dim, value_dim

    def head_dim(self, hidden: int, heads: int) -> int:
        """Width of a head: said, or its share of the hidden width.

        Raises WorkloadError where heads do not divide that.
        """
        said = self.fields.some("head_dim", "attention_head_dim")
        if said is None and hidden % heads:
            place = self.fields.place
            expected = f"a divisor of hidden_size, {hidden}, where no head_dim is given"
            raise WorkloadError(bad_value(place, self.fields.name_of(*HEADS), heads, expected))
        return said or hidden // heads

    def _kv_heads(self, heads: int) -> int:
        fields = self.fields
        inner = fields.inside("attn_config")
        if inner.has(*KV_HEADS):
            return inner.count(*KV_HEADS)
        multi = fields.flag("multi_query", default=False)
        grouped = fields.flag("new_decoder_architecture", default=False)
        said = fields.some(*KV_HEADS)
        return 1 if multi and not grouped else said or heads

    def _window(self, kind: Kind) -> int | None:
        if kind is Kind.SLIDING:
            return self.fields.count("sliding_window")
        if kind is Kind.CHUNKED:
            size = self.fields.count("attention_chunk_size")
            self.note(f"attention in chunks of {size} tokens counts as a window of {size // 2}")
            return size // 2
        return None

    # switches

    def _has_sinks(self, kind: Kind) -> bool:
        fields = self.fields
        sliding = fields.flag("add_swa_attention_sink_bias", default=False)
        full = fields.flag("add_full_attention_sink_bias", default=False)
        said = sliding if kind is Kind.SLIDING else full
        return said or self.family.sinks

    def _gates(self, what: str) -> bool:
        """Whether the result is gated: `full` by its width, or by `heads`."""
        fields, family = self.fields, self.family
        gating = fields.raw("gating", "use_gated_attn")
        heads = fields.flag("use_head_wise_attn_gate", family.head_gates)
        heads = heads or gating is True or gating == "per-head"
        full = fields.flag("attn_output_gate", family.output_gate) or gating == "per-element"
        return full if what == "full" else heads

    def _attention_bias(self) -> tuple[bool, bool]:
        fields, family = self.fields, self.family
        if family.bias_key:
            said = fields.flag(family.bias_key, family.bias)
            return said, said
        if fields.has("no_bias"):
            said = not fields.flag("no_bias", default=True)
            return said, said
        bias = fields.flag(family.attention_bias_key, family.bias)
        follows = family.output_follows and fields.has(family.attention_bias_key)
        output = bias if follows else family.output_bias
        return bias, fields.flag("attention_out_bias", default=output)

    # DeepSeek-V4

    def ratios(self, count: int) -> list[Any]:
        """Tokens that a key stands for, by layer; what follows is of modules that predict.

        Raises WorkloadError where there are fewer than layers.
        """
        fields = self.fields
        types = fields.items("layer_types")
        if fields.items("compress_ratios") is None and types and set(types) <= set(_RATIOS):
            return [_RATIOS[name] for name in types]
        ratios = fields.items("compress_ratios")
        if ratios is None or len(ratios) < count:
            said = None if ratios is None else len(ratios)
            raise WorkloadError(
                bad_value(fields.place, "compress_ratios", said, f"at least {count} numbers")
            )
        return list(ratios)

    def compressed(self, ratio: Any) -> CompressedAttention:
        """Attention of such a layer; the keys of ratio 4 are chosen by the indexer.

        Raises WorkloadError for a ratio that is not known.
        """
        fields = self.fields
        if ratio not in (0, _INDEXED, _POOLED):
            expected = f"0, {_INDEXED} or {_POOLED}"
            raise WorkloadError(bad_value(fields.place, "compress_ratios", ratio, expected))
        fields.read |= {*KV_HEADS, "qk_rope_head_dim"}
        return CompressedAttention(
            heads=fields.count(*HEADS),
            head_dim=fields.count("head_dim"),
            query_rank=fields.count("q_lora_rank"),
            output_groups=fields.count("o_groups"),
            output_rank=fields.count("o_lora_rank"),
            window=fields.count("sliding_window"),
            ratio=ratio,
            indexer=self.indexer(ratio) if ratio == _INDEXED else None,
        )


def _entry(fields: Fields, name: str, items: Any, layer: int) -> int:
    """A layer's number of a list; raises WorkloadError where it has none."""
    said = items[layer] if layer < len(items) else None
    if isinstance(said, bool) or not isinstance(said, int) or said < 1:
        expected = f"a whole number of at least 1 for layer {layer}"
        raise WorkloadError(bad_value(fields.place, name, said, expected))
    return said


def shared_layers(fields: Fields, count: int) -> Iterator[bool]:
    """Whether each layer reads keys and values of an earlier one: the last so many do (Gemma)."""
    shared = fields.count("num_kv_shared_layers", default=0, least=0)
    yield from (shared > 0 and layer >= count - shared for layer in range(count))
