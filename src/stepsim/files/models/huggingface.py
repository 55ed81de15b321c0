"""Hugging Face configurations: `config.json` as it is, to an architecture.

`architectures` decides how it is read. An unknown one is refused, and so is a key that nobody reads
and that may change the work of a step.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import replace, shipped
from stepsim.files.models.attentions import Attentions
from stepsim.files.models.fields import (
    MOST_LAYERS,
    PART_LETTERS,
    Family,
    Fields,
    Keys,
    Makers,
    families,
    part_layers,
    part_predictions,
    spelled,
)
from stepsim.files.models.layers import Feeding, Kind
from stepsim.files.models.towers import read_tower
from stepsim.files.reading import shipped_folder
from stepsim.workload.model.architecture import (
    Architecture,
    Attention,
    DenseMlp,
    GroupedAttention,
    Layer,
    Layers,
    LinearBlock,
    Mlp,
    NormKind,
)

_OF_MIXERS = r"mamba_|linear_|conv_|ssm_|time_step_|index_"
_OF_ENCODERS = ("is_encoder_decoder", "type_vocab_size")
_DECODES = re.compile("CausalLM|LMHead|ConditionalGeneration|^[a-z0-9_.-]*$")
# Parts of a configuration beside its text model.
_BESIDE = ("vision_config", "audio_config", "sound_config", "talker_config", "code2wav_config")
_Part = TypeVar("_Part", Attention, Mlp)
# Parts of a pattern by the names of newer releases of transformers.
_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}


def architecture_of(values: Keys, *, place: str, name: str) -> tuple[Architecture, list[str]]:
    """The architecture that a configuration describes, and what was assumed.

    Raises WorkloadError naming the place, the key and what is allowed.
    """
    notes: list[str] = []
    class_name = _named(values, place)
    family = _family(class_name, values, place, notes)
    whole = outer = Fields(place=place, values=values)
    keys = values
    if family.nested and outer.has("text_config"):
        outside = ("tie_word_embeddings", "quantization_config")
        outer = outer.inside("text_config")
        keys = {**{key: values[key] for key in outside if key in values}, **outer.values}
    reader = _Reader(
        place=outer.place,
        values=keys,
        defaults=class_defaults(class_name),
        family=family,
        notes=notes,
    )
    if keys.get("quantization_config"):
        notes.append(
            f"{name}: quantization_config is ignored: it says how weights are published; training "
            "has the precision asked for"
        )
    try:
        architecture = reader.architecture(name)
        architecture = _with_tower(architecture, whole, family, notes)
    except WorkloadError as error:
        text = str(error)
        raise WorkloadError(text if text.startswith(place) else f"{place}: {text}") from None
    if reader.assumed:
        assumed = _listed(reader.assumed)
        notes.append(f"{name}: not given, so taken as the class in transformers has it: {assumed}")
    return architecture, notes


def _with_tower(
    architecture: Architecture, whole: Fields, family: Family, notes: list[str]
) -> Architecture:
    """The architecture with what sees, as far as its shape is known; a note says what is not.

    Raises WorkloadError where samples have tokens of images and nothing is known to see them.
    """
    others = [key for key in _BESIDE if whole.values.get(key)]
    tokens = whole.count("image_tokens", default=0)
    frozen = whole.flag("frozen_tower")
    beside = family.nested and (others or whole.has("text_config"))
    if not beside and not tokens:
        return architecture
    tower, why, name = None, "", architecture.name
    try:
        tower, assumed = read_tower(family.tower, whole, architecture.hidden)
        if assumed:
            said = _listed(assumed)
            notes.append(f"{name}: its vision_config leaves out, as its class has it: {said}")
    except WorkloadError as error:  # what sees is not trained: it stops nothing
        why = f" ({error})"
    if tower is not None and tokens:
        return replace(architecture, tower=replace(tower, tokens=tokens, frozen=frozen))
    if tokens:
        expected = f"0: what sees in this model is not modelled{why}"
        raise whole.wrong(tokens, expected, "image_tokens")
    rest = [key for key in others if key != "vision_config" or tower is None]
    counted = f"; {tower.parameters() / 1e9:.3g} billion parameters see" if tower else ""
    left = f"; parameters of {', '.join(rest)} are not counted{why}" if rest else ""
    if counted or left:
        notes.append(
            f"{name}: its text model alone is trained here, not what sees or hears{counted}{left}; "
            "image_tokens beside its text_config are a sample's"
        )
    return replace(architecture, tower=tower)


def _listed(values: Keys) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(values.items()))


def _named(values: Keys, place: str) -> str:
    """The first name of `architectures`, else the class that a model of `model_type` has.

    transformers writes no classes of a model that was never saved. Raises WorkloadError where
    neither says one.
    """
    named = values.get("architectures")
    kind = values.get("model_type")
    if named is None and isinstance(kind, str):
        known = (*families().family, *families().refused)
        named = next((name for name in known if _bare(name) == _bare(kind)), kind)
    match named:
        case str(first) | [str(first), *_] if all(isinstance(each, str) for each in named):
            return first
    expected = "a list with the name of a model class, e.g. LlamaForCausalLM"
    raise WorkloadError(bad_value(place, "architectures", named, expected))


def _bare(name: str) -> str:
    """A class or a kind of models without what all classes end in."""
    return re.sub(r"for(causallm|conditionalgeneration)$|lmheadmodel$|_", "", name.lower())


def _family(name: str, values: Keys, place: str, notes: list[str]) -> Family:
    """The family of a class of models; of one that nobody knows that whose keys it has."""
    known = families()
    if why := known.refused.get(name):
        raise WorkloadError(
            f"{place}: architectures is {name!r}, which has {why}: this is not modelled"
        )
    if name in known.family:
        return known.family[name]
    inner: Any = values.get("text_config")
    nested = isinstance(inner, Mapping) and "hidden_size" in inner
    keys = inner if nested else values
    key = next((key for key in known.by_key if keys.get(key)), "")
    encodes = next((key for key in _OF_ENCODERS if values.get(key)), "")
    if not key or encodes or not _DECODES.search(name):
        why = f" ({encodes} is {values[encodes]})" if encodes else ""
        expected = f"a model that predicts the next token, e.g. {', '.join(list(known.family)[:3])}"
        raise WorkloadError(bad_value(place, "architectures", f"{name}{why}", expected))
    alike = (each for each, family in known.family.items() if family == known.by_key[key])
    like = next(alike, "Llama's")
    notes.append(
        f"architectures is {name}, which nobody here knows: read as {like} by its key {key}; "
        "biases and norms that only its code has are that one's"
    )
    return replace(known.by_key[key], nested=nested, is_guessed=True)


class _Reader(Attentions, Feeding, kw_only=True):
    """A configuration being read, with what its family fixes."""

    def architecture(self, name: str) -> Architecture:
        """Everything; in the end no key is left that matters."""
        family = self.family
        self.pass_over("beside_layers")
        # keys of MPT, DBRX and MiniMax-M3 that stand in tables of their own
        names = ("attn_config", "ffn_config", "sparse_attention_config")
        tables = {key: said for name in names for key, said in self.inside(name).values.items()}
        self.pass_over(*tables)
        self.values = {**tables, **self.values}
        if self.values.get("use_bidirectional_attention") == "vision":  # images are left out
            self.pass_over("use_bidirectional_attention")
        inputs = self.count("hidden_size_per_layer_input", default=0)
        parts = self._pattern("PATTERN") if family.singles else []
        count = self.count("LAYERS", default=len(parts) or None, most=MOST_LAYERS)
        if len(parts) not in (0, count):
            raise self.wrong(len(parts), f"{count} of them", "PATTERN")
        layers = part_layers(parts, self._makers()) if parts else tuple(self._layers(count))
        norm = family.norm  # MPT keeps biases of its norms where `no_bias` is false
        if norm is NormKind.LAYER_NO_BIAS and not self.flag("no_bias", default=True):
            norm = NormKind.LAYER
        architecture = Architecture(
            name=name,
            hidden=self.hidden,
            layers=layers,
            vocabulary=self.count("vocab_size"),
            tied=self.flag("tie_word_embeddings", "tie_embedding", default=family.tied),
            norm=norm,
            embedding_norm=family.embedding_norm,
            positions=self._positions(),
            head_bias=family.head_bias or self.flag("lm_head_bias"),
            dropout=any(self.raw(name) for name in spelled("DROPOUT")),
            prediction_layers=self._predictions(count, layers[-1]),
            input_vocabulary=inputs and self.count("vocab_size_per_layer_input", "vocab_size"),
        )
        if family.mixer:  # also where no layer has it
            self.read.update(key for key in self.values if re.match(_OF_MIXERS, key))
        passed = self.refuse_rest(every=family.is_guessed)
        if passed:
            said = ", ".join(f"{key} {value}" for key, value in passed.items())
            self.note(f"{name}: passed over, for no part of a step is known by it: {said}")
        return architecture

    def _predictions(self, count: int, last: Layer) -> Layers:
        """Layers that predict further tokens: like the last, or those of a pattern, in turn.

        MiniMax has modules of some layers each.
        """
        said = self.count("PREDICTED", default=0, most=64)
        modules = self.count("num_mtp_modules", default=0, most=64)
        deep = self.count("mtp_transformer_layers", default=1, most=64)
        number = said or modules * deep * self.flag("use_mtp", default=True)
        if self.has("PREDICTION_PATTERN"):
            pattern = self._pattern("PREDICTION_PATTERN")
            return part_predictions(pattern, self._makers()) * number
        ratios = self.items("compress_ratios") or []
        if self.family.compresses and ratios:  # what follows the layers' ratios is of the modules
            last = replace(last, attention=self.attention(ratios[-1]))
        members = self.raw("moe_layers_enum")  # Step-3.5 counts layers that predict on
        if last.is_sparse and isinstance(members, str):
            listed = str(count) in re.findall(r"\d{1,6}", members)
            last = last if listed else replace(last, mlp=self.dense())
        return (last,) * number

    # layers that are one part of a pattern

    def _pattern(self, *names: str) -> list[str]:
        """The parts of a pattern, as letters or as a list of names; none where nothing says so."""
        said = self.raw(*names)
        if said is None:
            return []
        if not isinstance(said, str | list) or not 0 < len(said) <= MOST_LAYERS:
            raise self.wrong(said, "letters, or a list of names", *names)
        known = {**PART_LETTERS, **{name: name for name in PART_LETTERS.values()}, **_NAMES}
        for part in said:
            if not isinstance(part, str) or part not in known:
                raise self.wrong(part, f"one of {', '.join(known)}", *names)
        return [known[part] for part in said]

    def _makers(self) -> Makers:
        return {
            "mamba": self.mamba2_mixer,
            "attention": lambda: self.attention(Kind.FULL),
            "mlp": self.dense,
            "moe": self.experts,
        }

    def _positions(self) -> int:
        """Learned positions; those of MPT unless it has ALiBi."""
        mpt = self.has("expansion_ratio") and not self.flag("alibi")
        if mpt and self.flag("learned_pos_emb", default=True) and not self.has("rope"):
            return self.count("POSITIONS")
        if self.family.learned:
            return self.count("POSITIONS") + self.family.extra_positions
        return 0

    def _layers(self, count: int) -> Iterator[Layer]:
        blocks = self.listed("block_configs", count)
        if blocks is not None:
            places = {f"block_configs[{i}]": block for i, block in enumerate(blocks)}
            fields = Fields(place=self.place, values=places)
            yield from (self._block(fields.inside(place)) for place in places)
            return
        made: dict[object, Layer] = {}
        if self.family.compresses:  # DeepSeek-V4, whose words on experts say how they are chosen
            self.pass_over("where_experts")
            kinds, sparse = self.ratios(count), [True] * count
        else:
            kinds, sparse = self.kinds(count), self.sparse(count)
        # the last layers may read keys and values of an earlier one
        own_keys = count - self.count("num_kv_shared_layers", default=0)
        borrowed = [layer >= own_keys for layer in range(count)]
        differ = self.has("num_attention_heads_per_layer", "per_layer_config")
        for number, kind in enumerate(zip(kinds, sparse, borrowed, strict=False)):
            key = (kind, differ and number)
            if key not in made:
                made[key] = self._layer(number, *kind)
            yield made[key]
            if self.family.doubled:  # attention and a dense MLP once more (LongCat)
                yield replace(made[key], mlp=self.dense())

    def _layer(self, number: int, kind: Any, sparse: bool, borrows: bool) -> Layer:
        """The layer of this number, of a kind, with experts or without."""
        family = self.family
        attention = self.attention(kind, layer=number, borrows=borrows)
        if family.always_mixes and family.mixer in ("mamba", "mamba2"):
            return Layer(attention=attention, mlp=None, norms=1)
        wide = self.flag("use_double_wide_mlp") and borrows
        width = self.count("hidden_size_per_layer_input", default=0)
        beside = sparse and family.dense_beside and not family.doubled  # of Gemma 4
        # Falcon's newer layers have one norm for attention and one for the MLP
        two = not self.flag("parallel_attn", default=True) or self.flag("new_decoder_architecture")
        return Layer(
            attention=attention,
            mlp=self.experts() if sparse else self.dense(twice=wide),
            norms=(2 if two else family.norms) + (width > 0) + 3 * beside,
            streams=self.count("hc_mult", default=1, most=64) if family.compresses else 1,
            input_width=width,
        )

    # layers that differ one by one, as a search found them

    def _block(self, fields: Fields) -> Layer:
        attention = self._block_part(fields.inside("attention"), self._block_attention)
        mlp = self._block_part(fields.inside("ffn"), self._block_mlp)
        norms = (attention is not None) + (mlp is not None)
        return Layer(attention=attention, mlp=mlp, norms=norms)

    def _block_part(
        self, fields: Fields, read: Callable[[Fields], _Part]
    ) -> _Part | LinearBlock | None:
        if fields.flag("no_op"):
            return None
        if fields.flag("replace_with_linear"):
            return LinearBlock()
        for name in ("sparsify", "num_sink_tokens", "unshifted_sink"):
            if fields.raw(name):
                expected = "it absent: sparse attention is not modelled"
                raise fields.wrong(fields.raw(name), expected, name)
        return read(fields)

    def _block_attention(self, fields: Fields) -> Attention:
        heads = self.count("HEADS")
        return GroupedAttention(
            heads=heads,
            kv_heads=heads // fields.count("n_heads_in_group", default=1),
            head_dim=self.head_dim(heads),
            window=fields.some("window_length"),
        )

    def _block_mlp(self, fields: Fields) -> Mlp:
        exact = int(2 * fields.number("ffn_mult", 0.0) * self.hidden / 3)
        width = fields.some("intermediate_size") or -(-exact // 256) * 256
        return DenseMlp(width=width, activation=self.activation())


def class_defaults(architecture: str) -> Keys:
    """Sizes by key that the class of an architecture has in transformers; none for others."""
    beside = str(shipped_folder("models") / "public.json")
    classes = shipped(beside, "class_defaults.toml", dict[str, Keys]).values()
    return next((each for each in classes if architecture in each["architectures"]), {})
