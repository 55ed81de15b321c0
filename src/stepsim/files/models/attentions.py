"""Attention of each layer, or the mixer in its place, in the words of configurations."""

from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.files.models.fields import Keys
from stepsim.files.models.layers import Kind, Kinds
from stepsim.workload.model.architecture import (
    Attention,
    GroupedAttention,
    LatentAttention,
    Mixer,
    QkNorm,
)
from stepsim.workload.model.block_sparse import BlockSparseAttention
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.kimi_delta import KimiDeltaAttention
from stepsim.workload.model.lightning_attention import LightningAttention
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.mamba1 import Mamba1
from stepsim.workload.model.parallel_mixer import ParallelMixer
from stepsim.workload.model.short_convolution import ShortConvolution
from stepsim.workload.model.sparse_attention import SparseLatentAttention

_INDEXED, _POOLED = 4, 128  # `_COMPRESS_RATIO_TO_LAYER_TYPE` of transformers
_RATIOS = {  # names of layers of DeepSeek-V4 in newer releases of transformers
    "sliding_attention": 0,
    "compressed_sparse_attention": _INDEXED,
    "heavily_compressed_attention": _POOLED,
}


class Attentions(Kinds, kw_only=True):
    """Reads the attention of a layer of some kind, or the mixer that it has in place of it."""

    def attention(self, kind: Any, *, layer: int = 0, borrows: bool = False) -> Attention:
        """Attention of the layer of this number; one that `borrows` reads an earlier one's keys.

        Its kind is a `Kind`, or how many tokens a key stands for where the family compresses.
        Raises WorkloadError naming the key at fault.
        """
        if kind is Kind.MIXER:
            return self.mixer()
        family = self.family
        if family.compresses:
            return self.compressed(kind)
        heads = self.count("HEADS")
        if self.has("kv_lora_rank"):
            return self._latent(heads, chooses=kind is not Kind.SHARED)
        bias, output_bias = self._attention_bias()
        normed = not family.qk_norm_key or self.flag(family.qk_norm_key)
        qk_norm = family.qk_norm if normed else QkNorm.NONE
        kinds = {"per_layer": qk_norm, "per_head": QkNorm.SHARED}
        qk_norm = self.choice("qk_norm_type", kinds, default="per_layer")
        is_normed = qk_norm is not QkNorm.NONE
        self.read |= {
            key for key in ("qk_norm", "use_qk_norm") if self.values.get(key) is is_normed
        }
        gating = self.raw("gating", "use_gated_attn")
        head_gates = self.flag("use_head_wise_attn_gate", default=family.head_gates)
        gated = self.flag("attn_output_gate", default=family.output_gate)
        window = self.count("sliding_window") if kind is Kind.SLIDING else None
        if kind is Kind.CHUNKED:
            size = self.count("attention_chunk_size")
            window = size // 2
            self.note(f"attention in chunks of {size} tokens counts as a window of {window}")
        names = ("add_full_attention_sink_bias", "add_swa_attention_sink_bias")
        sinks = [self.flag(name) for name in names]
        return GroupedAttention(
            **self._sizes(heads, kind, layer),
            window=window,
            bias=bias,
            output_bias=output_bias,
            qk_norm=qk_norm,
            sinks=sinks[kind is Kind.SLIDING] or family.sinks,
            gated=gated or gating == "per-element",
            head_gates=head_gates or gating is True or gating == "per-head",
            borrows=borrows,
            query_rank=self.some("share_q_dim"),
        )

    def grouped(self) -> GroupedAttention:
        """Grouped attention beside a state; raises WorkloadError for any other."""
        attention = self.attention(Kind.FULL)
        if not isinstance(attention, GroupedAttention):
            raise WorkloadError(f"{self.place}: attention beside a state: expected grouped")
        return attention

    def _latent(self, heads: int, *, chooses: bool) -> Attention:
        self.pass_over("KV_HEADS", "head_dim", "qk_head_dim", "mla_use_nope")
        latent = LatentAttention(
            heads=heads,
            query_rank=self.some("q_lora_rank", least=0) or None,
            **self.part("latent"),
            rope_dim=self.count("qk_rope_head_dim", least=0),
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
        return Indexer(**self.part("indexer"), ratio=ratio)

    # sizes

    def _sizes(self, heads: int, kind: Kind, layer: int) -> Keys:
        """Heads of a layer, heads of keys and values, and widths of both, by their fields."""
        name = "num_attention_heads_per_layer"
        own = self.items(name)
        if own is not None:
            said = own[layer] if layer < len(own) else None
            if type(said) is not int or said < 1:
                raise self.wrong(said, f"a whole number of at least 1 for layer {layer}", name)
            heads = said
        grouped, kv_heads = self.flag("new_decoder_architecture"), self.some("KV_HEADS")
        kv_heads = 1 if self.flag("multi_query") and not grouped else kv_heads or heads
        own_layer = self.inside(f"per_layer_config.{layer:02d}")
        wide = kind is Kind.FULL and self.has("global_head_dim")
        shares = self.flag("attention_k_eq_v") and wide
        sizes = {
            "heads": heads,
            "kv_heads": own_layer.count("KV_HEADS", default=kv_heads),
            "head_dim": own_layer.count("head_dim", default=self.head_dim(heads)),
            "value_dim": self.some("v_head_dim"),
            "shares_values": shares,
        }
        sliding = self.part("sliding", **sizes)
        if wide:
            sizes["head_dim"] = self.count("global_head_dim")
        if shares:
            sizes["kv_heads"] = self.count("num_global_key_value_heads", default=sizes["kv_heads"])
        return sliding if kind is Kind.SLIDING else sizes

    def head_dim(self, heads: int) -> int:
        """Width of a head: said, or its share of the hidden width.

        Raises WorkloadError where heads do not divide that.
        """
        said = self.some("head_dim", "attention_head_dim")
        if said is None and self.hidden % heads:
            expected = f"a divisor of hidden_size, {self.hidden}, where no head_dim is given"
            raise self.wrong(heads, expected, "HEADS")
        return said or self.hidden // heads

    # switches

    def _attention_bias(self) -> tuple[bool, bool]:
        family = self.family
        bias = self.biased(family.attention_bias_key, family.bias)
        follows = family.output_follows and self.has(family.attention_bias_key)
        follows = follows or bool(family.bias_key) or self.has("no_bias")
        usual = bias if follows else family.output_bias
        return bias, self.flag("attention_out_bias", default=usual)

    # DeepSeek-V4

    def ratios(self, count: int) -> list[Any]:
        """Tokens that a key stands for, by layer; what follows is of modules that predict.

        Raises WorkloadError where there are fewer than layers, and for one that is not known.
        """
        types, ratios, key = self.items("layer_types"), self.items("compress_ratios"), "layer_types"
        if ratios is None and types and all(each in [*_RATIOS] for each in types):
            ratios = [_RATIOS[name] for name in types]
        else:
            key = "compress_ratios"
        if ratios is None or len(ratios) < count:
            said = None if ratios is None else len(ratios)
            raise self.wrong(said, f"at least {count} of them", key)
        for ratio in ratios:
            if ratio not in (0, _INDEXED, _POOLED):
                raise self.wrong(ratio, f"0, {_INDEXED} or {_POOLED}", "compress_ratios")
        return list(ratios)

    def compressed(self, ratio: Any) -> CompressedAttention:
        """Attention of such a layer; the keys of ratio 4 are chosen by the indexer."""
        self.pass_over("KV_HEADS", "qk_rope_head_dim")
        return CompressedAttention(
            **self.part("compressed"),
            ratio=ratio,
            indexer=self.indexer(ratio) if ratio == _INDEXED else None,
        )

    # mixers

    def mixer(self) -> Mixer:
        """The mixer of the family; one that names none has a gated delta net by its keys."""
        found: Mixer = getattr(self, f"{self.family.mixer or 'delta'}_mixer")()
        return found

    def mamba2_mixer(self) -> Mamba2:
        """Mamba-2 in the words of NemotronHConfig, BambaConfig or Mamba2Config.

        Raises WorkloadError naming the key at fault.
        """
        self.pass_over("beside_mamba2")
        if (act := self.text("mamba_hidden_act", default="silu")) != "silu":
            raise self.wrong(act, "silu", "mamba_hidden_act")
        names = ("use_bias", "mamba_proj_bias", "projectors_bias")
        biases = [self.flag(name) for name in names]
        said = self.part("mamba2")
        return Mamba2(
            **said,
            head_dim=self._state_width(said["heads"]),
            bias=any(biases),
            normed=self.flag("mamba_rms_norm", default=self.family.mixer != "parallel"),
        )

    def _state_width(self, heads: int) -> int:
        """Width of a head: said, or `auto` the state's width over its heads."""
        names = ["mamba_head_dim", "mamba_d_head", "mamba_headdim"]
        if self.family.always_mixes and self.family.mixer == "mamba2":
            names.append("head_dim")
        inner = self.some("mamba_d_ssm")
        if self.raw(*names) not in (None, "auto"):
            return self.count(*names)
        return (inner or self.count("mamba_expand", default=2) * self.hidden) // heads

    def mamba_mixer(self) -> Mamba1:
        """Mamba in the words of JambaConfig or MambaConfig."""
        self.pass_over("beside_mamba1")
        inner = self.count("mamba_expand", default=2) * self.hidden
        if self.family.always_mixes:
            inner = self.count(
                "intermediate_size", default=self.count("expand", default=2) * self.hidden
            )
        names = ("mamba_dt_rank", "time_step_rank")
        auto = self.raw(*names) in (None, "auto")
        return Mamba1(
            heads=inner,
            **self.part("mamba1"),
            rank=-(-self.hidden // 16) if auto else self.count(*names),
            normed=not self.family.always_mixes,
        )

    def parallel_mixer(self) -> ParallelMixer:
        """Grouped attention beside Mamba-2, in the words of FalconH1Config."""
        attention = self.grouped()
        return ParallelMixer(heads=attention.heads, attention=attention, mamba=self.mamba2_mixer())

    def delta_mixer(self) -> GatedDeltaNet:
        """A gated delta net in the words of Qwen3NextConfig; OLMo leaves widths out."""
        said = self.part("delta")
        usual = 3 * self.hidden // (4 * said["key_heads"])
        width = self.count("linear_key_head_dim", default=usual or None)
        values = self.count("linear_value_head_dim", default=2 * width)
        return GatedDeltaNet(**said, key_dim=width, value_dim=values)

    def kimi_mixer(self) -> KimiDeltaAttention:
        """Kimi delta attention, in the words of KimiLinearConfig or BailingHybridConfig."""
        said = self.part("kimi")
        rank = None if self.family.full_gates else said["head_dim"]
        return KimiDeltaAttention(**said, gate_rank=rank)

    def lightning_mixer(self) -> LightningAttention:
        """Lightning attention, in the words of MiniMaxConfig or BailingMoeLinearV2Config."""
        self.pass_over("group_norm_size", "KV_HEADS")
        said = self.part("lightning")
        width = self.count("head_dim", default=self.hidden // said["heads"])
        return LightningAttention(**said, head_dim=width)

    def blocks_mixer(self) -> BlockSparseAttention:
        """Attention to blocks, in the words of MiniMaxM3VLTextConfig or of what is published."""
        block = self.count("sparse_block_size", "index_block_size")
        attention = self.grouped()
        return BlockSparseAttention(
            heads=attention.heads,
            attention=attention,
            indexer=Indexer(
                **self.part("block_indexer"),
                top_k=self.count("sparse_topk_blocks", "index_topk_blocks") * block,
            ),
            block=block,
        )

    def convolution_mixer(self) -> ShortConvolution:
        """A gated short convolution, in the words of Lfm2Config."""
        return ShortConvolution(heads=self.hidden, **self.part("convolution"))
