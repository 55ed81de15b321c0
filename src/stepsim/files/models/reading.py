"""What every part of a configuration's reading shares: its keys, its family, and their synonyms.

Patterns of hybrid models, the one part that each layer is, are those of Megatron-LM's arguments
too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepsim.base.structs import Noun, replace
from stepsim.files.models.families import Family
from stepsim.files.models.fields import Fields
from stepsim.workload.model.architecture import Activation, Attention, Layer, Mlp

HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_n_heads", "num_attention_groups")
WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "block_ff_dim")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
EXPERTS = (
    *("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "moe_num_primary_experts",
)
TOP_K = (
    *("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k"),
    *("top_k_experts", "moe_topk", "moe_k", "moe_num_active_primary_experts"),
)
EXPERT_WIDTH = (
    *("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size"),
    "moe_ffn_hidden_size",
)
SHARED = (
    *("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
)
SHARED_WIDTH = (
    *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    *("shared_intermediate_size", "share_expert_dim"),
)
PREDICTED = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
_ACTIVATIONS = {
    "silu": (Activation.SWIGLU, None),
    "swish": (Activation.SWIGLU, None),
    "swiglu": (Activation.SWIGLU, None),
    "swigluoai": (Activation.SWIGLU, None),
    "gelu": (Activation.GEGLU, Activation.GELU),
    "gelu_new": (Activation.GEGLU, Activation.GELU),
    "gelu_fast": (Activation.GEGLU, Activation.GELU),
    "gelu_pytorch_tanh": (Activation.GEGLU, Activation.GELU),
    "relu": (None, Activation.RELU),
    "relu2": (None, Activation.SQUARED_RELU),
    "xielu": (None, Activation.GELU),
}
"""By name: the activation where it has a gate, and where it has none."""


PART_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Parts by their letter (NemotronHConfig of transformers, Megatron-LM's `--hybrid-*-pattern`)."""


class PartMakers(Noun):
    """What makes each part of a pattern: `mixing` those that mix tokens, `mlps` the others."""

    mixing: Mapping[str, Callable[[], Attention]]
    mlps: Mapping[str, Callable[[], Mlp]]

    def layers(self, parts: Iterable[str]) -> tuple[Layer, ...]:
        """A layer with a norm for each part; alike parts are one object."""
        made: dict[str, Layer] = {}
        listed = list(parts)
        for part in dict.fromkeys(listed):
            attention = self.mixing[part]() if part in self.mixing else None
            mlp = self.mlps[part]() if part in self.mlps else None
            made[part] = Layer(attention=attention, mlp=mlp, norms=1, single=True)
        return tuple(made[part] for part in listed)

    def predictions(self, parts: Iterable[str]) -> tuple[Layer, ...]:
        """Layers of a module that predicts a further token.

        Parts that mix tokens begin a layer, an MLP after one belongs to it: `*E` is one layer.
        """
        result: list[Layer] = []
        for layer in self.layers(parts):
            if layer.attention is None and result and result[-1].mlp is None:
                result[-1] = replace(result[-1], mlp=layer.mlp, norms=2, single=False)
            else:
                result.append(layer)
        return tuple(result)


class Reading(Fields, kw_only=True):
    """A configuration being read, with what its family fixes, and what is said of it."""

    family: Family
    notes: list[str]

    @property
    def hidden(self) -> int:
        """How wide the model is."""
        return self.count(*HIDDEN)

    def activation(self) -> Activation:
        """The activation of its MLPs; raises WorkloadError for one that is not known."""
        family = self.family
        inner = self.inside("ffn_config").inside("ffn_act_fn")
        name = inner.text("name", default=self.text(*_ACTIVATION, default=family.activation))
        gated, plain = _ACTIVATIONS.get(name, (None, None))
        chosen = gated if family.gated else plain
        if chosen is None:
            known = (n for n, pair in _ACTIVATIONS.items() if pair[0 if family.gated else 1])
            key = self.name_of(*_ACTIVATION)
            raise self.wrong(key, name, f"one of {', '.join(known)}")
        return chosen

    def note(self, text: str) -> None:
        """Say something of the configuration, once."""
        if text not in self.notes:
            self.notes.append(text)

    def listed(self, name: str, count: int, *, spare: int = 0) -> list[Any] | None:
        """A list with an entry for each layer; `spare` more may follow, which are left out.

        Raises WorkloadError where it has another length.
        """
        said = self.items(name)
        if said is None:
            return None
        if not count <= len(said) <= count + spare:
            raise self.wrong(name, len(said), f"{count} of them")
        return list(said[:count])
