"""A configuration as it is read: its keys, what its family fixes, and what its parts share.

Each key is read once and checked, and what nobody read is looked at last. A family is known by the
name that a configuration gives its architecture; it says what the code of the model classes in
Hugging Face transformers 4.57 fixes and the configuration does not say. Patterns of hybrid models,
the one part that each layer is, are those of Megatron-LM's arguments too.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import Noun, replace, shipped
from stepsim.workload.model.architecture import Activation, Attention, Layer, Mlp, NormKind, QkNorm

_LARGEST = 1 << 40
MOST_LAYERS = 100_000
_SUSPECT = (
    "layer|expert|moe|head|dim|hidden|intermediate|window|mamba|ssm|conv|linear|sparse|index|lora|"
    "rank|chunk|hybrid|compress|adapter|mlp|attn|attention|cross|encoder|decoder|size|norm|bias|"
    "ffn|mult|parallel|state|block|mtp|predict"
)
_STRUCTURAL = (
    r"mamba_[dn]|ssm_state|linear_(num|key|value)|index_(topk|n_heads)|_rank$|hybrid|compress_ratio|"
    r"adapter|cross_|experts|moe_(layer|intermediate)|kv_shared|per_layer|hc_mult|^vocab|ngram"
)
_SHAPING = "bidirectional|altup|laurel"
"""Of these, keys that change what a layer is: a size that nobody reads is refused."""


def keys() -> Mapping[str, Sequence[str]]:
    """Keys of configurations by what they say."""
    return shipped(__file__, "keys.toml", dict[str, list[str]])


class Fields(Struct, kw_only=True):
    """The keys of a configuration; `place` names it in errors, `read` are the keys asked for.

    Keys that it leaves out have the value that `defaults` say, which are noted in `assumed`.
    """

    place: str
    values: Mapping[str, Any]
    read: set[str] = set()
    defaults: Mapping[str, Any] = {}
    assumed: dict[str, Any] = {}

    def has(self, *names: str) -> bool:
        """Whether one of these keys says something."""
        return self.raw(*names) is not None

    def raw(self, *names: str) -> Any:
        """The value of the first of these keys that has one, None if none has."""
        self.read.update(names)
        said = next((self.values[n] for n in names if self.values.get(n) is not None), None)
        silent = said is None and not any(n in self.values for n in names)
        left = next((n for n in names if n in self.defaults), None) if silent else None
        if left is not None:
            said = self.assumed[left] = self.defaults[left]
        return said

    def wrong(self, name: str, value: object, expected: str) -> WorkloadError:
        """The error of a key with a wrong value."""
        return WorkloadError(bad_value(self.place, name, value, expected))

    def name_of(self, *names: str) -> str:
        """The key that says it, as errors call it."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def count(
        self, *names: str, default: int | None = None, least: int = 1, most: int = _LARGEST
    ) -> int:
        """A whole number; raises WorkloadError where it is missing without a default, or wrong.

        It may be 0 where that is the default.
        """
        value = self.raw(*names)
        least = 0 if default == 0 else least
        expected = f"a whole number of at least {least}"
        if most < _LARGEST:
            expected = f"a whole number from {least} to {most}"
        if value is None:
            if default is not None:
                return default
            raise WorkloadError(f"{self.place}: {names[0]} is missing: expected {expected}")
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(self.name_of(*names), value, expected)
        return value

    def some(self, *names: str, least: int = 1) -> int | None:
        """A whole number, None where nothing is said."""
        return self.count(*names, least=least) if self.has(*names) else None

    def number(self, name: str, default: float) -> float:
        """A number above 0; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not value > 0:
            raise self.wrong(name, value, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, *names: str, default: str) -> str:
        """A text; raises WorkloadError for anything else."""
        value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(self.name_of(*names), value, "a text")
        return value

    def items(self, name: str) -> Sequence[Any] | None:
        """A list, None where there is none; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def inside(self, name: str) -> "Fields":
        """The keys of a table, none where there is no such table; raises WorkloadError."""
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, value, "a table of keys")
        return Fields(place=f"{self.place}: {name}", values=value or {})

    def refuse_rest(self, *, every: bool = False) -> dict[str, Any]:
        """Keys that nobody read and that may change the work of a step a little, or `every` one.

        Raises WorkloadError for one that surely does.
        """
        passed = {}
        harmless = re.compile("|".join(keys()["harmless"]))
        for name, value in self.values.items():
            if name in self.read or not value or harmless.fullmatch(name):
                continue
            if every or isinstance(value, dict) or re.search(f"{_SUSPECT}|{_SHAPING}", name):
                passed[name] = value
                if _is_size(name, value):
                    expected = "it absent: what it changes is not modelled"
                    raise self.wrong(name, value, expected)
        return passed


def _is_size(name: str, value: Any) -> bool:
    """Whether a key says how large or how many: a switch, a share or a word does not."""
    if re.search(_SHAPING, name) or (isinstance(value, dict) and re.search(_SUSPECT, name)):
        return True
    counts = type(value) is int and value > 1
    return bool((counts or isinstance(value, list)) and re.search(_STRUCTURAL, name))


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
