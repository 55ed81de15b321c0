"""Hugging Face configurations: `config.json` as it is, to an architecture.

`architectures` decides how it is read. An unknown one is refused, and so is a key that nobody reads
and that may change the work of a step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from stepsim.base.errors import StepsimError, WorkloadError, bad_value
from stepsim.base.structs import replace
from stepsim.files.models.families import FAMILIES, REFUSED, Family, WindowRule
from stepsim.files.models.fields import MOST_LAYERS, Fields
from stepsim.files.models.patterns import PART_LETTERS, PartMakers
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    Attention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
    LinearBlock,
    Mlp,
    NormKind,
    QkNorm,
)
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.sparse_attention import SparseLatentAttention

_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_n_heads")
_WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
_PREDICTED = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
_PATTERN = ("hybrid_override_pattern", "layers_block_type")
_PREDICTION_PATTERN = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
_INDEXED, _POOLED = 4, 128  # `_COMPRESS_RATIO_TO_LAYER_TYPE` of transformers
_LINEAR, _LINEAR_HEADS = "linear_attention", "linear_num_value_heads"
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
_ACTIVATIONS = {
    "silu": (Activation.SWIGLU, None),
    "swish": (Activation.SWIGLU, None),
    "swiglu": (Activation.SWIGLU, None),
    "gelu": (Activation.GEGLU, Activation.GELU),
    "gelu_new": (Activation.GEGLU, Activation.GELU),
    "gelu_fast": (Activation.GEGLU, Activation.GELU),
    "gelu_pytorch_tanh": (Activation.GEGLU, Activation.GELU),
    "relu": (None, Activation.RELU),
    "relu2": (None, Activation.SQUARED_RELU),
}
"""By name: the activation where it has a gate, and where it has none."""


def architecture_of(
    values: Mapping[str, Any], *, place: str, name: str
) -> tuple[Architecture, list[str]]:
    """The architecture that a configuration describes, and what was assumed.

    Raises WorkloadError naming the place, the key and what is allowed.
    """
    family = _family(values, place)
    fields = Fields(place=place, values=values, defaults=family.defaults)
    notes = []
    quantised = fields.raw("quantization_config")
    if family.nested and fields.has("text_config"):
        tied = {key: values[key] for key in ("tie_word_embeddings",) if key in values}
        inner = fields.inside("text_config")
        fields = replace(inner, values={**tied, **inner.values}, defaults=family.defaults)
        notes.append(f"{name}: only its text model is trained here, without vision and audio")
        quantised = quantised or fields.raw("quantization_config")
    if quantised:
        notes.append(
            f"{name}: quantization_config is ignored: it says how weights are published; training "
            "has the precision asked for"
        )
    try:
        architecture = _Reader(fields=fields, family=family, notes=notes).architecture(name)
    except WorkloadError as error:
        text = str(error)
        raise WorkloadError(text if text.startswith(place) else f"{place}: {text}") from None
    if fields.assumed:
        assumed = ", ".join(f"{key} {value}" for key, value in sorted(fields.assumed.items()))
        notes.append(f"{name}: not given, so taken as the class in transformers has it: {assumed}")
    return architecture, notes


def _family(values: Mapping[str, Any], place: str) -> Family:
    named = values.get("architectures")
    if isinstance(named, str):
        named = [named]
    if not isinstance(named, list) or not named or not all(isinstance(n, str) for n in named):
        expected = "a list with the name of a model class, e.g. LlamaForCausalLM"
        raise WorkloadError(bad_value(place, "architectures", named, expected))
    name = named[0]
    if name in REFUSED:
        raise WorkloadError(
            f"{place}: architectures is {name!r}, which has {REFUSED[name]}: this is not modelled"
        )
    if name not in FAMILIES:
        raise WorkloadError(
            bad_value(place, "architectures", name, f"one of {', '.join(sorted(FAMILIES))}")
        )
    return FAMILIES[name]


class _Reader(Struct, kw_only=True):
    """A configuration being read, with what its family fixes."""

    fields: Fields
    family: Family
    notes: list[str]

    def architecture(self, name: str) -> Architecture:
        """Everything; in the end no key is left that matters."""
        fields, family = self.fields, self.family
        fields.read |= {"architectures", "model_type", "name", "text_config"}
        if fields.values.get("use_bidirectional_attention") == "vision":  # images are left out
            fields.read.add("use_bidirectional_attention")
        if not fields.values.get("hidden_size_per_layer_input"):
            fields.read.add("vocab_size_per_layer_input")
        parts = self._pattern(*_PATTERN)
        count = len(parts) if parts else None
        hidden = fields.count(*_HIDDEN)
        count = fields.count(*_LAYERS, default=count, most=MOST_LAYERS)
        if family.compresses:
            layers = tuple(self._compressed_layers(hidden, count))
        elif parts:
            layers = self._singles(hidden, parts, count)
        else:
            layers = tuple(self._layers(hidden, count))
        positions = self._positions()
        norm = self._norm()
        predicted = self._predicted()
        found = Architecture(
            name=name,
            hidden=hidden,
            layers=layers,
            vocabulary=fields.count("vocab_size"),
            tied=fields.flag("tie_word_embeddings", family.tied),
            norm=norm,
            embedding_norm=family.embedding_norm,
            final_norm=family.final_norm,
            positions=positions,
            head_bias=family.head_bias or fields.flag("lm_head_bias", default=False),
            dropout=self._dropout(),
            prediction_layers=self._prediction(hidden, layers[-1]) * predicted,
        )
        fields.refuse_rest()
        return found

    def _predicted(self) -> int:
        """Layers that predict further tokens; MiniMax has modules of some layers each."""
        fields = self.fields
        fields.flag("mtp_use_dedicated_embeddings", default=False)
        said = fields.count(*_PREDICTED, default=0, least=0, most=64)
        modules = fields.count("num_mtp_modules", default=0, least=0, most=64)
        deep = fields.count("mtp_transformer_layers", default=1, most=64)
        return said or modules * deep * fields.flag("use_mtp", default=True)

    def _prediction(self, hidden: int, last: Layer) -> tuple[Layer, ...]:
        """The layers of one module that predicts a further token: like the last, or a pattern."""
        layers = self._makers(hidden).predictions(self._pattern(*_PREDICTION_PATTERN))
        ratios = self.fields.items("compress_ratios") or []
        if self.family.compresses and ratios:  # what follows the layers' ratios is of the modules
            last = replace(last, attention=self._compressed(ratios[-1]))
        return layers or (last,)

    def _compressed_layers(self, hidden: int, count: int) -> Iterator[Layer]:
        """Layers of DeepSeek-V4, in the words of DeepseekV4Config: tokens that a key stands for."""
        fields = self.fields
        ratios = fields.items("compress_ratios")
        if ratios is None or len(ratios) < count:
            said = None if ratios is None else len(ratios)
            raise WorkloadError(
                bad_value(fields.place, "compress_ratios", said, f"at least {count} numbers")
            )
        fields.read.add("num_hash_layers")  # a table chooses the experts, which changes no work
        mlp = self._experts(hidden)
        streams = fields.count("hc_mult", default=1, most=64)
        made = {
            ratio: Layer(attention=self._compressed(ratio), mlp=mlp, norms=2, streams=streams)
            for ratio in dict.fromkeys(ratios[:count])
        }
        yield from (made[ratio] for ratio in ratios[:count])

    def _compressed(self, ratio: Any) -> CompressedAttention:
        """Attention of such a layer; the keys of ratio 4 are chosen by the indexer."""
        fields = self.fields
        if ratio not in (0, _INDEXED, _POOLED):
            expected = f"0, {_INDEXED} or {_POOLED}"
            raise WorkloadError(bad_value(fields.place, "compress_ratios", ratio, expected))
        fields.read |= {*_KV_HEADS, "qk_rope_head_dim"}
        return CompressedAttention(
            heads=fields.count(*_HEADS),
            head_dim=fields.count("head_dim"),
            query_rank=fields.count("q_lora_rank"),
            output_groups=fields.count("o_groups"),
            output_rank=fields.count("o_lora_rank"),
            window=fields.count("sliding_window"),
            ratio=ratio,
            indexer=self._indexer(ratio) if ratio == _INDEXED else None,
        )

    # layers that are one part of a pattern

    def _pattern(self, *names: str) -> list[str]:
        """The parts of a pattern, as letters or as a list of names; none where nothing says so."""
        fields = self.fields
        said = fields.raw(*names)
        if said is None:
            return []
        key = fields.name_of(*names)
        if not isinstance(said, str | list) or not 0 < len(said) <= MOST_LAYERS:
            raise WorkloadError(bad_value(fields.place, key, said, "letters, or a list of names"))
        known = {**PART_LETTERS, **{name: name for name in PART_LETTERS.values()}}
        wrong = next(
            (part for part in said if not isinstance(part, str) or part not in known), None
        )
        if wrong is not None:
            expected = f"one of {', '.join(known)}"
            raise WorkloadError(bad_value(fields.place, key, wrong, expected))
        return [known[part] for part in said]

    def _singles(self, hidden: int, parts: Sequence[str], count: int) -> tuple[Layer, ...]:
        """The layers of a pattern, each one part with a norm."""
        if len(parts) != count:
            place, key = self.fields.place, self.fields.name_of(*_PATTERN)
            raise WorkloadError(bad_value(place, key, len(parts), f"{count} of them"))
        return self._makers(hidden).layers(parts)

    def _makers(self, hidden: int) -> PartMakers:
        return PartMakers(
            mixing={"mamba": self._mamba, "attention": lambda: self._attention(hidden, None)},
            mlps={"mlp": lambda: self._dense(hidden), "moe": lambda: self._experts(hidden)},
        )

    def _mamba(self) -> Mamba2:
        """Mamba-2 in the words of NemotronHConfig; heads decide the width, not `expand`."""
        fields = self.fields
        fields.read |= {"expand", "time_step_rank", "use_mamba_kernels"}
        if (act := fields.text("mamba_hidden_act", default="silu")) != "silu":
            raise WorkloadError(bad_value(fields.place, "mamba_hidden_act", act, "silu"))
        biases = [fields.flag(name, default=False) for name in ("use_bias", "mamba_proj_bias")]
        return Mamba2(
            heads=fields.count("mamba_num_heads"),
            head_dim=fields.count("mamba_head_dim"),
            groups=fields.count("n_groups"),
            state=fields.count("ssm_state_size"),
            convolution=fields.count("conv_kernel", default=4),
            chunk=fields.count("chunk_size", default=128),
            convolution_bias=fields.flag("use_conv_bias", default=True),
            bias=any(biases),
        )

    def _norm(self) -> NormKind:
        """MPT keeps biases of its norms where `no_bias` is false."""
        norm = self.family.norm
        if norm is NormKind.LAYER_NO_BIAS and not self.fields.flag("no_bias", default=True):
            return NormKind.LAYER
        return norm

    def _dropout(self) -> bool:
        """Whether residuals are dropped out in training."""
        names = ("hidden_dropout", "resid_pdrop", "dropout", "resid_dropout")
        return any(bool(self.fields.raw(name)) for name in names)

    def _positions(self) -> int:
        """Learned positions; those of MPT unless it has ALiBi."""
        config = self.fields.inside("attn_config")
        mpt = self.fields.has("expansion_ratio") and not config.flag("alibi", default=False)
        if mpt and self.fields.flag("learned_pos_emb", default=True) and not config.has("rope"):
            return self.fields.count(*_POSITIONS)
        if self.family.learned:
            return self.fields.count(*_POSITIONS) + self.family.extra_positions
        return 0

    def _layers(self, hidden: int, count: int) -> Iterator[Layer]:
        blocks = self.fields.items("block_configs")
        if blocks is not None:
            if len(blocks) != count:
                expected = f"{count} blocks, one for each layer"
                place = self.fields.place
                raise WorkloadError(bad_value(place, "block_configs", len(blocks), expected))
            yield from (self._block(hidden, i, block) for i, block in enumerate(blocks))
            return
        windows = list(self._windows(count))
        sparse = list(self._sparse(count))
        linear = list(self._linear(count))
        kinds: dict[tuple[int | None, bool, bool], Layer] = {}
        for key in zip(windows, sparse, linear, strict=True):
            if key not in kinds:
                attention = self._delta_net() if key[2] else self._attention(hidden, key[0])
                kinds[key] = Layer(
                    attention=attention,
                    mlp=self._experts(hidden) if key[1] else self._dense(hidden),
                    norms=self._norms(),
                )
            yield kinds[key]

    def _norms(self) -> int:
        """Norms of a layer; Falcon's newer layers have one for attention and one for the MLP."""
        two = self.fields.flag("new_decoder_architecture", default=False)
        parallel = self.fields.flag("parallel_attn", default=True)
        falcon = self.fields.has("new_decoder_architecture", "parallel_attn")
        return 2 if falcon and (two or not parallel) else self.family.norms

    # attention

    def _linear(self, count: int) -> Iterator[bool]:
        """Whether each layer has linear attention: by its type, else all but every nth."""
        types = self.fields.items("layer_types")
        nth = self.fields.count("full_attention_interval", default=0, least=0)
        for layer in range(count):
            if types is not None:
                yield types[layer] == _LINEAR
            else:
                yield nth > 0 and (layer + 1) % nth != 0

    def _delta_net(self) -> GatedDeltaNet:
        """A gated delta net in the words of Qwen3NextConfig."""
        fields = self.fields
        return GatedDeltaNet(
            heads=fields.count("linear_num_value_heads"),
            key_heads=fields.count("linear_num_key_heads"),
            key_dim=fields.count("linear_key_head_dim"),
            value_dim=fields.count("linear_value_head_dim"),
            convolution=fields.count("linear_conv_kernel_dim", default=4),
        )

    def _attention(self, hidden: int, window: int | None) -> Attention:
        fields, family = self.fields, self.family
        heads = fields.count(*_HEADS)
        if fields.has("kv_lora_rank"):
            fields.read.update((*_KV_HEADS, "head_dim", "qk_head_dim"))
            latent = LatentAttention(
                heads=heads,
                query_rank=fields.some("q_lora_rank"),
                kv_rank=fields.count("kv_lora_rank"),
                nope_dim=fields.count("qk_nope_head_dim"),
                rope_dim=fields.count("qk_rope_head_dim", least=0),
                value_dim=fields.count("v_head_dim"),
                bias=self._attention_bias()[0] and family.output_follows,
            )
            return self._indexed(latent) if family.indexer else latent
        bias, output_bias = self._attention_bias()
        normed = not family.qk_norm_key or fields.flag(family.qk_norm_key, default=False)
        if (kind := fields.text("qk_norm_type", default="per_layer")) != "per_layer":
            raise WorkloadError(bad_value(fields.place, "qk_norm_type", kind, "per_layer"))
        wide = window is None and fields.has("global_head_dim")
        shares = fields.flag("attention_k_eq_v", default=False)
        kv_heads = fields.some("num_global_key_value_heads") if wide and shares else None
        return GroupedAttention(
            heads=heads,
            kv_heads=kv_heads or self._kv_heads(heads),
            head_dim=fields.count("global_head_dim") if wide else self._head_dim(hidden, heads),
            shares_values=wide and shares,
            window=window,
            bias=bias,
            output_bias=output_bias,
            qk_norm=family.qk_norm if normed else QkNorm.NONE,
            sinks=family.sinks,
            gated=fields.flag("attn_output_gate", default=family.output_gate),
        )

    def _indexed(self, latent: LatentAttention) -> SparseLatentAttention:
        """Attention to what an indexer chooses, in the words of DeepseekV32Config."""
        return SparseLatentAttention(
            heads=latent.heads,
            latent=latent,
            indexer=self._indexer(ratio=1),
        )

    def _indexer(self, ratio: int) -> Indexer:
        fields = self.fields
        return Indexer(
            heads=fields.count("index_n_heads"),
            dim=fields.count("index_head_dim"),
            top_k=fields.count("index_topk"),
            ratio=ratio,
        )

    def _head_dim(self, hidden: int, heads: int) -> int:
        said = self.fields.some("head_dim", "attention_head_dim")
        if said is None and hidden % heads:
            place = self.fields.place
            expected = f"a divisor of hidden_size, {hidden}, where no head_dim is given"
            raise WorkloadError(bad_value(place, self.fields.name_of(*_HEADS), heads, expected))
        return said or hidden // heads

    def _kv_heads(self, heads: int) -> int:
        fields = self.fields
        inner = fields.inside("attn_config")
        if inner.has(*_KV_HEADS):
            return inner.count(*_KV_HEADS)
        multi = fields.flag("multi_query", default=False)
        grouped = fields.flag("new_decoder_architecture", default=False)
        said = fields.some(*_KV_HEADS)
        return 1 if multi and not grouped else said or heads

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
        return bias, bias if follows else family.output_bias

    def _windows(self, count: int) -> Iterator[int | None]:
        """The window of every layer, as `layer_types` or the family's rule say."""
        fields = self.fields
        window = fields.some("sliding_window")
        chunk = fields.some("attention_chunk_size")
        types = fields.items("layer_types")
        if types is not None:
            yield from (self._window_of(each, window, chunk) for each in types)
            if len(types) != count:
                raise WorkloadError(
                    bad_value(fields.place, "layer_types", len(types), f"{count} of them")
                )
            return
        on = fields.flag("use_sliding_window", self.family.window is not WindowRule.UPPER)
        nth = fields.count("sliding_window_pattern", default=6)
        first = fields.count("max_window_layers", default=0, least=0)
        for layer in range(count):
            if chunk:
                yield None if (layer + 1) % 4 == 0 else self._chunk(chunk)
                continue
            sliding = {
                WindowRule.ALL: True,
                WindowRule.NONE: False,
                WindowRule.EVEN: layer % 2 == 0,
                WindowRule.PATTERN: (layer + 1) % nth != 0,
                WindowRule.UPPER: layer >= first,
            }[self.family.window]
            yield window if sliding and on else None

    def _window_of(self, kind: Any, window: int | None, chunk: int | None) -> int | None:
        if kind == "full_attention" or (kind == _LINEAR and self.fields.has(_LINEAR_HEADS)):
            return None
        if kind == "sliding_attention" and window:
            return window
        if kind == "chunked_attention" and chunk:
            return self._chunk(chunk)
        expected = "full_attention, or sliding_attention beside a sliding_window"
        raise WorkloadError(bad_value(self.fields.place, "layer_types", kind, expected))

    def _chunk(self, size: int) -> int:
        note = f"attention in chunks of {size} tokens counts as a window of {size // 2}"
        if note not in self.notes:
            self.notes.append(note)
        return size // 2

    # MLP

    def _activation(self) -> Activation:
        fields, family = self.fields, self.family
        inner = fields.inside("ffn_config").inside("ffn_act_fn")
        name = inner.text("name", default=fields.text(*_ACTIVATION, default=family.activation))
        gated, plain = _ACTIVATIONS.get(name, (None, None))
        found = gated if family.gated else plain
        if found is None:
            known = (n for n, pair in _ACTIVATIONS.items() if pair[0 if family.gated else 1])
            place, key = fields.place, fields.name_of(*_ACTIVATION)
            raise WorkloadError(bad_value(place, key, name, f"one of {', '.join(known)}"))
        return found

    def _mlp_bias(self) -> bool:
        fields, family = self.fields, self.family
        if family.bias_key:
            return fields.flag(family.bias_key, family.mlp_bias)
        if fields.has("no_bias"):
            return not fields.flag("no_bias", default=True)
        return fields.flag(family.mlp_bias_key, family.mlp_bias)

    def _dense(self, hidden: int) -> DenseMlp:
        fields = self.fields
        ratio = fields.some("expansion_ratio")
        dense = fields.some("intermediate_size_mlp") or fields.some(*_WIDTH)
        if dense is None and (ratio or not self.family.gated):
            dense = (ratio or 4) * hidden
        width = dense or fields.count(*_WIDTH)
        return DenseMlp(width=width, activation=self._activation(), bias=self._mlp_bias())

    def _sparse(self, count: int) -> Iterator[bool]:
        """Whether each layer has experts."""
        fields = self.fields
        ffn = fields.inside("ffn_config")
        sparse = (fields.some(*_EXPERTS, least=0) or ffn.some(*_EXPERTS) or 0) > 1
        first = fields.count("first_k_dense_replace", default=0, least=0)
        listed = fields.items("moe_layers")
        dense = fields.items("mlp_only_layers") or []
        every = fields.count("decoder_sparse_step", "interleave_moe_layer_step", default=1)
        frequency = fields.raw("moe_layer_freq")
        if isinstance(frequency, int):
            every = fields.count("moe_layer_freq")
        for layer in range(count):
            if isinstance(frequency, list) and layer < len(frequency):
                yield sparse and bool(frequency[layer])
            elif listed is not None:
                yield sparse and layer in listed
            elif fields.has("moe_layer_freq"):
                yield sparse and layer >= first and layer % every == 0
            else:
                yield sparse and layer >= first and layer not in dense and (layer + 1) % every == 0

    def _experts(self, hidden: int) -> ExpertMlp:
        fields, family = self.fields, self.family
        ffn = fields.inside("ffn_config")
        if ffn.has(*_EXPERTS):
            fields = ffn
        width = fields.count("moe_intermediate_size", *_WIDTH)
        each = fields.count("n_shared_experts", "num_shared_experts", default=0, least=0)
        shared = fields.count(*_SHARED_WIDTH, default=each * width, least=0)
        if fields.has("interleave_moe_layer_step"):
            shared = width
        if fields.has("intermediate_size_mlp"):
            fields.count("intermediate_size_mlp")
        return ExpertMlp(
            experts=fields.count(*_EXPERTS),
            top_k=fields.count(*_TOP_K),
            width=width,
            shared_width=shared,
            activation=self._activation(),
            bias=self._mlp_bias(),
            router_bias=family.router_bias,
            clamped=family.clamps,
            shared_gate=family.shared_gate and shared > 0,
            groups=fields.count("n_group", default=1),
            token_groups=fields.count("topk_group", default=1),
            latent=fields.some("moe_latent_size"),
        )

    # layers that differ one by one, as a search found them

    def _block(self, hidden: int, number: int, block: Any) -> Layer:
        place = f"{self.fields.place}: block_configs[{number}]"
        if not isinstance(block, dict):
            raise WorkloadError(f"{place}: expected a table with attention and ffn")
        both = Fields(place=place, values=block)
        attention = self._block_attention(hidden, both.inside("attention"))
        mlp = self._block_mlp(hidden, both.inside("ffn"))
        parts = (attention, mlp)
        return Layer(attention=attention, mlp=mlp, norms=sum(part is not None for part in parts))

    def _block_attention(self, hidden: int, fields: Fields) -> Attention | None:
        if fields.flag("no_op", default=False):
            return None
        if fields.flag("replace_with_linear", default=False):
            return LinearBlock()
        self._refuse_sparse(fields, ("sparsify", "num_sink_tokens", "unshifted_sink"))
        heads = self.fields.count(*_HEADS)
        return GroupedAttention(
            heads=heads,
            kv_heads=heads // fields.count("n_heads_in_group", default=1),
            head_dim=self._head_dim(hidden, heads),
            window=fields.some("window_length"),
        )

    def _block_mlp(self, hidden: int, fields: Fields) -> Mlp | None:
        if fields.flag("no_op", default=False):
            return None
        if fields.flag("replace_with_linear", default=False):
            return LinearBlock()
        self._refuse_sparse(fields, ("sparsify",))
        exact = int(2 * fields.number("ffn_mult", 0.0) * hidden / 3)
        width = fields.some("intermediate_size") or -(-exact // 256) * 256
        return DenseMlp(width=width, activation=self._activation())

    def _refuse_sparse(self, fields: Fields, names: Iterable[str]) -> None:
        for name in names:
            if fields.raw(name):
                expected = "it absent: sparse attention is not modelled"
                raise StepsimError(bad_value(fields.place, name, fields.raw(name), expected))
