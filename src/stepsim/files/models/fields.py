"""A configuration as it is read: its keys, what its family fixes, and what its parts share.

Each key is read once and checked, and what nobody read is looked at last. A family is known by the
name that a configuration gives its architecture; it says what the code of the model classes in
Hugging Face transformers 4.57 fixes and the configuration does not say. Patterns of hybrid models,
the one part that each layer is, are those of Megatron-LM's arguments too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import Noun, Values, replace, shipped
from stepsim.workload.model.architecture import (
    Activation,
    Attention,
    Layer,
    Layers,
    Mlp,
    NormKind,
    QkNorm,
)

_Known = TypeVar("_Known")
_LARGEST = 1 << 40
MOST_LAYERS = 100_000
Keys = Mapping[str, Any]
"""What a configuration or a part of it says, by its keys or by fields."""


def spelled(*names: str) -> list[str]:
    """The keys of `keys.toml` that names stand for, other names as they are."""
    known = shipped(__file__, "keys.toml", dict[str, list[str]])
    return [key for name in names for key in known.get(name, [name])]


class Fields(Struct, kw_only=True):
    """The keys of a configuration; `place` names it in errors, `read` are the keys asked for.

    A key of a table in it is called `table.key`.
    Keys that it leaves out have the value that `defaults` say, which are noted in `assumed`.
    """

    place: str
    values: Keys
    read: set[str] = set()
    defaults: Keys = {}
    assumed: Values = {}

    def has(self, *names: str) -> bool:
        """Whether one of these keys says something."""
        return self.raw(*names) is not None

    def raw(self, *names: str, kind: type = object, expected: str = "") -> Any:
        """The value of the first of these keys that has one, None if none has.

        Raises WorkloadError where it is not of a kind, which is what was `expected`.
        """
        keys = spelled(*names)
        self.read.update(keys)
        said = next((value for value in [*map(self.value, keys)] if value is not None), None)
        silent = said is None and self.values.keys().isdisjoint(keys)
        left = next((key for key in keys if key in self.defaults), None) if silent else None
        if left is not None:
            said = self.assumed[left] = self.defaults[left]
        if said is not None and not isinstance(said, kind):
            raise self.wrong(said, expected, *names)
        return said

    def value(self, key: str) -> Any:
        """What a key says, None where there is none."""
        table, dot, inner = key.partition(".")
        return self.inside(table).value(inner) if dot else self.values.get(key)

    def pass_over(self, *names: str) -> None:
        """Take these keys for read, whatever they say."""
        self.read.update(spelled(*names))

    def wrong(self, value: object, expected: str, *names: str) -> WorkloadError:
        """The error of a wrong value of the first of these keys that has one."""
        return WorkloadError(bad_value(self.place, self.name_of(*names), value, expected))

    def name_of(self, *names: str) -> str:
        """The key that says it, as errors call it."""
        keys = spelled(*names)
        return next((key for key in keys if self.value(key) is not None), keys[0])

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
            missing = self.name_of(*names)
            raise WorkloadError(f"{self.place}: {missing} is missing: expected {expected}")
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(value, expected, *names)
        return value

    def some(self, *names: str, least: int = 1) -> int | None:
        """A whole number, None where nothing is said."""
        return self.count(*names, least=least) if self.has(*names) else None

    def or_one(self, *names: str) -> int:
        """A whole number, or 1 where it is false or left out."""
        return self.count(*names, default=1) if self.raw(*names) else 1

    def uniform(self, name: str, least: int = 0) -> int | None:
        """A whole number, or a list of one for every layer that say the same; None for none.

        Raises WorkloadError where layers differ.
        """
        said = self.raw(name)
        if not isinstance(said, list):
            return self.some(name, least=least)
        if not said or any(item != said[0] for item in said) or not isinstance(said[0], int):
            raise self.wrong(said, "the same whole number for all layers", name)
        return int(said[0])

    def number(self, name: str, default: float) -> float:
        """A number above 0; raises WorkloadError for anything else."""
        value = self.raw(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not value > 0:
            raise self.wrong(value, "a number above 0", name)
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false; raises WorkloadError for anything else."""
        value = self.raw(*names, kind=bool, expected="true or false")
        return default if value is None else bool(value)

    def part(self, name: str, **usual: Any) -> Keys:
        """Fields of a part of layers or of a job, in the order in which `parts.toml` has them.

        Each stands in keys of its own. Those that no key says are what is `usual`.
        """
        parts = shipped(__file__, "parts.toml", dict[str, dict[str, list[Any]]])[name]
        said = (field for field, words in parts.items() if field not in usual or self.has(*words))
        return {**usual, **{field: self._said(*parts[field]) for field in said}}

    def _said(self, *words: Any) -> int:
        """A number, or whether something is so, by its keys and what it is without them."""
        names = [word for word in words if isinstance(word, str)]
        usual = words[-1] if len(words) > len(names) else None
        if isinstance(usual, bool):
            return self.flag(*names, default=usual)
        return self.count(*names, default=usual)

    def text(self, *names: str, default: str) -> str:
        """A text; raises WorkloadError for anything else."""
        value = self.raw(*names, kind=str, expected="a text")
        return default if value is None else str(value)

    def choice(self, name: str, known: Mapping[str, _Known], *, default: str) -> _Known:
        """What a word stands for; raises WorkloadError for one that is not known."""
        said = self.raw(name)
        word = default if said is None else str(said)
        if word not in known:
            raise self.wrong(word, f"one of {', '.join(known)}", name)
        return known[word]

    def items(self, name: str) -> Sequence[Any] | None:
        """A list, None where there is none; raises WorkloadError for anything else."""
        value: Sequence[Any] | None = self.raw(name, kind=list, expected="a list")
        return value

    def inside(self, name: str) -> "Fields":
        """The keys of a table, none where there is no such table; raises WorkloadError."""
        value = self.raw(name, kind=dict, expected="a table of keys")
        return Fields(place=f"{self.place}: {name}", values=value or {})

    def refuse_rest(self, *, every: bool) -> Keys:
        """Keys that nobody read and that may change the work of a step a little, or `every` one.

        Raises WorkloadError for one that surely does: it changes what a layer is, or says how large
        or how many. A switch, a share or a word does not.
        """
        words = ("harmless", "suspect", "shaping", "structural")
        harmless, suspect, shaping, structural = ("|".join(spelled(word)) for word in words)
        passed = {}
        for name, value in self.values.items():
            if name in self.read or not value or re.fullmatch(harmless, name):
                continue
            is_table, shapes = isinstance(value, dict), re.search(shaping, name)
            is_suspect = re.search(suspect, name)
            if every or is_table or is_suspect or shapes:
                passed[name] = value
                counts = isinstance(value, list) or (type(value) is int and value > 1)
                sized = counts and re.search(structural, name)
                if shapes or sized or (is_table and is_suspect):
                    raise self.wrong(value, "it absent: what it changes is not modelled", name)
        return passed


PART_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Parts by their letter (NemotronHConfig of transformers, Megatron-LM's `--hybrid-*-pattern`)."""


Makers = Mapping[str, Callable[[], Attention | Mlp]]
"""What makes each part of a pattern, by its name."""


def part_layers(parts: Sequence[str], makers: Makers) -> Layers:
    """A layer with a norm for each part; alike parts are one object."""
    layers = {}
    for part in dict.fromkeys(parts):
        made: Values = {"attention": None, "mlp": None}
        made["mlp" if part in ("mlp", "moe") else "attention"] = makers[part]()
        layers[part] = Layer(**made, norms=1)
    return tuple(layers[part] for part in parts)


def part_predictions(parts: Sequence[str], makers: Makers) -> Layers:
    """Layers of a module that predicts a further token.

    Parts that mix tokens begin a layer, an MLP after one belongs to it: `*E` is one layer.
    """
    result: list[Layer] = []
    for layer in part_layers(parts, makers):
        if layer.attention is None and result and result[-1].mlp is None:
            result[-1] = replace(result[-1], mlp=layer.mlp, norms=2)
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
    that it has. `tower` are kinds of what sees, `activation` activations by their words.
    """

    family: dict[str, Family]
    by_key: dict[str, Family]
    refused: dict[str, str]
    tower: dict[str, Keys]
    activation: dict[str, tuple[Activation, ...]]


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
        return self.count("HIDDEN")

    def activation(self) -> Activation:
        """The activation of its MLPs; raises WorkloadError for one that is not known."""
        name = self.text("ffn_act_fn.name", "ACTIVATION", default=self.family.activation)
        known = {
            word: each
            for word, several in families().activation.items()
            for each in several
            if each.gated == self.family.gated
        }
        if name not in known:
            raise self.wrong(name, f"one of {', '.join(known)}", "ACTIVATION")
        return known[name]

    def biased(self, key: str, usual: bool) -> bool:
        """Whether a part has biases: by the key of all parts that the family has, or by its own."""
        if self.family.bias_key or not self.has("no_bias"):
            return self.flag(self.family.bias_key or key, default=usual)
        return not self.flag("no_bias")

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
            raise self.wrong(len(said), f"{count} of them", name)
        return list(said[:count])
