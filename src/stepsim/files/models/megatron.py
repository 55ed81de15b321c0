"""Megatron-LM's arguments: an architecture, and what they ask of a step.

Names and defaults are those of Megatron-LM's `arguments.py` (core 0.14). Arguments that change
nothing of a step's work are passed over; those of layers that are not modelled are refused.
"""

import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Values, replace, shipped
from stepsim.files.models.fields import (
    MOST_LAYERS,
    PART_LETTERS,
    Fields,
    Makers,
    part_layers,
    part_predictions,
)
from stepsim.files.models.megatron_rules import (
    BESIDE_WEIGHTS,
    FSDP_STAGES,
    PAIRED_EXCHANGES,
    PAIRED_WEIGHTS,
    broken_rules,
    layout_slices,
)
from stepsim.files.models.scripts import Arguments, needed
from stepsim.files.reading import number_in
from stepsim.files.shell.words import shown_word, unknown_in
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    Attention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
    Layers,
    NormKind,
    QkNorm,
)
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.model import AskedItems, AskedOptions, Model, Unread
from stepsim.workload.model.sparse_attention import SparseLatentAttention

# What Megatron-DeepSpeed's scripts say of models without experts.
_NO_EFFECT = (("moe-expert-parallel-size", "1"), ("num-experts", "1"))
# The sequence of a decoder alone, too.
_ENCODER = "encoder-seq-length"
_DEEPSPEED = ("deepspeed", "zero-stage", "deepspeed-config")
_SPECS = re.compile(r"[\w.]*\b(mamba|hybrid)_layer_specs\b.*")
_PATTERNS = ("hybrid-layer-pattern", "hybrid-override-pattern")
_RATIOS = ("hybrid-attention-ratio", "hybrid-mlp-ratio")
# Parts of a pattern by their letter, those included that configurations do not have.
_LETTERS = {**PART_LETTERS, "G": "gated_delta_net", "D": "dsa"}
# A list of 0 and 1 as Python has it, and how often it is repeated: `[0,1]*3`.
_RUN = re.compile(r"\[?([01](?:,[01])*)\]?(?:\*([0-9]{1,5}))?")
_EXPERT_LAYERS, _WINDOW_LAYERS = "moe-layer-freq", "window-attn-skip-freq"
# What GPT-NeoX does: two thirds of the width are shared by the gate and what it gates.
_SHARED = "gates-share-width"


def _words(table: str) -> Any:
    """Names of arguments, as `megatron.toml` has them, and what they are here."""
    return shipped(__file__, "megatron.toml", Values)[table]


def model_of_arguments(path: Path, values: Arguments) -> Model:
    """The model and the plan of arguments by name, a switch with an empty value.

    What nobody knows stands in them as a mark. Errors call them by the file they stand in. Raises
    WorkloadError naming the argument at fault and what is allowed.
    """
    said = {name: value for name, value in values.items() if (name, value) not in _NO_EFFECT}
    if not said.keys() & {"seq-length", "decoder-seq-length"} and _ENCODER in said:
        said["seq-length"] = said.pop(_ENCODER)
    arguments = MegatronArguments(place=str(path), values=said).with_depth()
    refused, read = map("|".join, (_words("refused"), _words("read")))
    for name, value in arguments.values.items():
        known = re.fullmatch(read, name) or (name == "spec" and _SPECS.fullmatch(value))
        if re.fullmatch(refused, name) and not known:
            raise WorkloadError(
                f"{path}: --{name} {shown_word(value)}: what it changes is not modelled"
            )
    return Model(
        source=path.name,
        architecture=arguments.architecture(path.stem),
        asked=dict(_asked(arguments)),
        warnings=tuple(_warnings(arguments)),
    )


class MegatronArguments(Fields, kw_only=True):
    """Arguments by name, all texts; what nobody knows stands in them as a mark."""

    def has(self, *names: str) -> bool:
        """Whether one of them is given."""
        return any(name in self.values for name in names)

    def raw(self, *names: str, kind: type = object, expected: str = "") -> Any:
        """The value of an argument: a number where it is one, unless a text is wanted.

        Raises WorkloadError where nobody knows it.
        """
        if why := self.lack(super().name_of(*names)):
            raise WorkloadError(why)
        said = super().raw(*names)
        is_number = said and kind is not str and re.fullmatch(r"-?[0-9]{1,18}", said)
        return int(said) if is_number else said

    def name_of(self, *names: str) -> str:
        """The argument, as errors call it."""
        return f"--{super().name_of(*names)}"

    def text(self, *names: str, default: str = "") -> str:
        """A text, the default where it is empty; raises WorkloadError where nobody knows it."""
        return self.raw(*names, kind=str) or default

    def lack(self, name: str, option: str = "") -> str:
        """What to say of an argument that nobody knows the value of, and what would tell it.

        It is empty where the value is known.
        """
        said = self.values.get(name, "")
        unknown = unknown_in(said)
        if unknown is None:
            return ""
        or_option = f", or --{option.replace('_', '-')}" if option else ""
        return f"{self.place}: --{name} is {shown_word(said)}: {needed(unknown)}{or_option}"

    def known(self, name: str, default: int) -> int:
        """A whole number, the default where nobody knows it."""
        return default if self.lack(name) else self.count(name, default=default)

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1; raises WorkloadError for anything else."""
        text = self.text(name, default=str(default))
        return number_in(self.place, self.name_of(name), text, WorkloadError, 0, 1)

    # the model that they describe

    @property
    def hidden(self) -> int:
        """How wide the model is."""
        return self.count("hidden-size")

    @property
    def depth(self) -> int:
        """How many layers it has."""
        return self.count("num-layers", most=MOST_LAYERS)

    def patterns(self) -> list[str]:
        """The pattern of layers, then those of modules that predict further tokens, by `/`."""
        said = self.text(*_PATTERNS)
        if not said and self.has(*_RATIOS):
            return [self.by_ratios()]
        if not set(said) <= {*_LETTERS, "|", "/"}:
            expected = f"letters of {' '.join(_LETTERS)}, | between stages, / before predictions"
            raise self.wrong(said, expected, *_PATTERNS)
        return said.split("/") if said else []

    def by_ratios(self) -> str:
        """The pattern that shares of attention and of MLPs mean (Megatron-Core's `_allocate_auto`).

        Attention lies evenly between Mamba layers, MLPs evenly among those and as late as they can.
        For example 8 layers with shares of 0.25 and 0.25 are `MM*-M*M-`.
        """
        count = self.depth
        attention = round(count * self.share(_RATIOS[0], 0.0))
        letters = ["M"] * count
        mamba = count - attention
        _spread(letters, "*", mamba / (attention + 1))
        mlps = round(count * self.share(_RATIOS[1], 0.0))
        if mlps > mamba:
            expected = f"at most {mamba} of {count} layers beside attention"
            raise self.wrong(mlps, expected, _RATIOS[1])
        if mlps:
            _spread(letters, "-", (mamba - mlps) / mlps)
        return "".join(letters)

    def with_depth(self) -> "MegatronArguments":
        """With as many layers as a pattern has where no number is given."""
        patterns = self.patterns()
        if not patterns or self.has("num-layers"):
            return self
        count = len(patterns[0].replace("|", ""))
        return replace(self, values={**self.values, "num-layers": str(count)})

    def of_pattern(self) -> tuple[Layers, Layers]:
        """The layers of a pattern, and those that predict further tokens; raises WorkloadError."""
        main, *others = self.patterns()
        parts = [_LETTERS[letter] for letter in main if letter != "|"]
        if len(parts) != self.depth:
            raise self.wrong(main, f"{self.depth} letters (--num-layers)", *_PATTERNS)
        dense, sparse = self.mlps()
        if "moe" in parts and sparse is None:
            raise WorkloadError(f"{self.place}: --num-experts is missing: the pattern has experts")
        makers: Makers = {
            "mamba": self.mamba,
            "attention": self.attention,
            "gated_delta_net": self.delta_net,
            "dsa": self.sparse_attention,
            "mlp": lambda: dense,
            "moe": lambda: sparse or dense,
        }
        modules = (part_predictions([_LETTERS[x] for x in other], makers) for other in others)
        return part_layers(parts, makers), tuple(chain.from_iterable(modules))

    def sparse_attention(self) -> SparseLatentAttention:
        """Attention to what an indexer chooses; raises WorkloadError unless it is latent."""
        latent = self.attention()
        if not isinstance(latent, LatentAttention):
            what = "--experimental-attention-variant dsa, or D in a pattern"
            raise WorkloadError(f"{self.place}: {what}: expected --multi-latent-attention")
        indexer = Indexer(**self.part("megatron_indexer"))
        return SparseLatentAttention(heads=latent.heads, latent=latent, indexer=indexer)

    def mamba(self) -> Mamba2:
        """Mamba-2; as wide as twice the hidden width where no heads are given."""
        width = self.count("mamba-head-dim", default=64)
        heads = max(2 * self.hidden // width, 1)
        return Mamba2(head_dim=width, **self.part("megatron_mamba", heads=heads))

    def architecture(self, name: str) -> Architecture:
        """All of the model; raises WorkloadError naming the argument at fault."""
        norm = NormKind.RMS if self.text("normalization").lower() == "rmsnorm" else NormKind.LAYER
        further = self.count("mtp-num-layers", default=0, most=64)
        if self.patterns():
            layers, predictions = self.of_pattern()
        else:
            layers = self.usual_layers()
            predictions = (layers[-1],) * further
        learned = (
            self.text("position-embedding-type", default="learned_absolute") == "learned_absolute"
        )
        learned = learned and not self.has("use-rotary-position-embeddings")
        return Architecture(
            name=name,
            hidden=self.hidden,
            layers=layers,
            vocabulary=self.vocabulary(),
            tied=not self.has("untie-embeddings-and-output-weights"),
            norm=norm,
            positions=self.count("max-position-embeddings") if learned else 0,
            dropout=self.share("hidden-dropout", 0.1) > 0,
            prediction_layers=predictions,
        )

    def usual_layers(self) -> Layers:
        """All layers as attention, or of the variant that stands in its place, and an MLP."""
        dense, sparse = self.mlps()
        attention: Attention = self.attention()
        net, linear = attention, [False] * self.depth
        variant = self.text("experimental-attention-variant")
        if variant == "gated_delta_net":
            net, linear = self.delta_net(), self.chosen("linear-attention-freq")
        elif variant == "dsa":
            attention = self.sparse_attention()
        elif variant:
            expected = "gated_delta_net, or dsa with --multi-latent-attention"
            raise self.wrong(variant, expected, "experimental-attention-variant")
        whole = attention  # of layers whose window is skipped
        if isinstance(whole, GroupedAttention):
            whole = replace(whole, window=None)
        sparse_layers, sliding = self.chosen(_EXPERT_LAYERS, "1"), [True] * self.depth
        if self.text(_WINDOW_LAYERS).replace(" ", ""):
            sliding = self.chosen(_WINDOW_LAYERS)
        return tuple(
            Layer(
                attention=net if other else attention if slides else whole,
                mlp=sparse if sparse and expert else dense,
            )
            for other, expert, slides in zip(linear, sparse_layers, sliding, strict=True)
        )

    def delta_net(self) -> GatedDeltaNet:
        """A gated delta net."""
        return GatedDeltaNet(**self.part("megatron_delta_net"))

    def vocabulary(self) -> int:
        """The padded vocabulary, which is what is computed."""
        if padded := self.some("padded-vocab-size", "pad-vocab-size-to"):
            return padded
        size = self.count("vocab-size", default=50257)
        tp = self.known("tensor-model-parallel-size", 1)
        multiple = self.count("make-vocab-size-divisible-by", default=128) * tp
        return -(-size // multiple) * multiple

    def attention(self) -> GroupedAttention | LatentAttention:
        """Attention of a layer; its window is a number of tokens, or the first of a pair."""
        heads = self.count("num-attention-heads")
        if self.has("multi-latent-attention"):
            return LatentAttention(heads=heads, **self.part("megatron_latent", query_rank=None))
        if not self.has("kv-channels") and self.hidden % heads:
            expected = (
                f"a divisor of --hidden-size, {self.hidden}, where no --kv-channels are given"
            )
            raise self.wrong(heads, expected, "num-attention-heads")
        if self.has("group-query-attention"):
            kv_heads = self.count("num-query-groups", default=1)
        else:
            kv_heads = self.count("num-key-value-heads", default=heads)  # of Megatron-DeepSpeed
        window = self.text("window-size").strip("()").split(",")[0]
        biased = not self.has("disable-bias-linear")
        return GroupedAttention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=self.count("kv-channels", default=self.hidden // heads),
            window=int(window) if re.fullmatch("[1-9][0-9]{0,9}", window) else None,
            bias=biased or self.has("add-qkv-bias"),
            output_bias=biased,
            qk_norm=QkNorm.SHARED if self.has("qk-layernorm") else QkNorm.NONE,
            gated=self.has("attention-output-gate"),
            sinks=self.text("softmax-type", default="vanilla") == "learnable",
        )

    def mlps(self) -> tuple[DenseMlp, ExpertMlp | None]:
        """The MLP of dense layers, and that of layers with experts where there are any."""
        swiglu, shared = self.has("swiglu"), self.has(_SHARED)
        plain = Activation.SQUARED_RELU if self.has("squared-relu") else Activation.GELU
        activation = Activation.SWIGLU if swiglu else plain
        biased, usual = not self.has("disable-bias-linear"), 4 * self.hidden
        gated = int(usual * 2 / 3 / 64) * 64 if swiglu and not shared else usual
        width = self.count("ffn-hidden-size", default=gated)
        dense = DenseMlp(
            width=int(width * 2 / 3) // 2 if shared else width, activation=activation, bias=biased
        )
        if not self.has("num-experts"):
            return dense, None
        width = self.count("ffn-hidden-size", default=usual)
        return dense, ExpertMlp(
            **self.part("megatron_experts", width=width, latent=None),
            activation=activation,
            bias=biased,
            router_bias=self.has("moe-router-bias"),
            shared_gate=self.has("moe-shared-expert-gate"),
        )

    def chosen(self, name: str, usual: str = "") -> list[bool]:
        """Layers that an argument chooses: by a number, or by a list of 0 and 1 as Python has it.

        Of a number every nth layer has experts; what else it speaks of is in all but every nth.
        """
        text, depth = self.text(name, default=usual).replace(" ", ""), self.depth
        if re.fullmatch("[1-9][0-9]{0,5}", text):
            nth = int(text)
            if name == _EXPERT_LAYERS:
                return [layer % nth == 0 for layer in range(depth)]
            return [(layer + 1) % nth != 0 for layer in range(depth)]
        runs = [_RUN.fullmatch(part.strip("()")) for part in text.split("+")]
        digits = (run[1].split(",") * int(run[2] or 1) for run in runs if run)
        found = [digit == "1" for digit in islice(chain.from_iterable(digits), depth + 1)]
        if None in runs or len(found) != depth:
            expected = f"a number, or {depth} of 0 and 1 as in ([0]*3+[1]*58)"
            raise self.wrong(text, expected, name)
        return found


def _spread(letters: list[str], letter: str, section: float) -> None:
    """Put a letter behind every `section` of Mamba layers, in place of the next of them."""
    left = section
    for layer, other in enumerate(letters):
        if other != "M":
            continue
        if left < 0.5:
            letters[layer] = letter
            left += section
        else:
            left -= 1


def asked_of(source: str, values: Arguments) -> AskedOptions:
    """What arguments, by name, ask of a step; `source` is what errors call their file.

    They need not describe a model, but `num-layers` must be among them, and `num-experts` of a
    model with experts. Raises WorkloadError.
    """
    return dict(_asked(MegatronArguments(place=source, values=values)))


def _asked(arguments: MegatronArguments) -> AskedItems:
    yield "tp", 1
    yield "pp", 1
    for option, name in _words("counts").items():
        if why := arguments.lack(name, option):
            yield option, Unread(why)
        elif arguments.has(name):
            yield option, arguments.count(name)
    for option, name in _words("switches").items():
        yield option, arguments.has(name)
    graphs = arguments.text("cuda-graph-impl", default="none") != "none"
    yield "cuda_graph", graphs or arguments.has("enable-cuda-graph", "external-cuda-graph")
    if arguments.known("tensor-model-parallel-size", 2) > 1:
        yield "sequence_parallel", arguments.has("sequence-parallel")
    yield "zero", _zero(arguments)
    if arguments.has(*_DEEPSPEED):
        yield "framework", "megatron-deepspeed"
    yield from _precision(arguments)
    if arguments.has("grad-reduce-in-bf16"):
        yield "states", "bf16-gradients"
    yield from _recompute(arguments)
    yield from _placement(arguments)
    yield from _exchanges(arguments)
    if arguments.text("attention-backend") in ("unfused", "local"):
        yield "attention", "unfused"


def _zero(arguments: MegatronArguments) -> int:
    """ZeRO's stage: of Megatron FSDP the one that its strategy names, by default none."""
    if arguments.has("use-torch-fsdp2"):
        return 3
    if arguments.has("zero-stage"):  # of Megatron-DeepSpeed
        return arguments.count("zero-stage", least=0)
    if not arguments.has("use-megatron-fsdp", "use-custom-fsdp"):
        return 1 if arguments.has("use-distributed-optimizer") else 0
    return arguments.choice("data-parallel-sharding-strategy", FSDP_STAGES, default="no_shard")


def _exchanges(arguments: MegatronArguments) -> AskedItems:
    """How keys and values, and tokens of experts, are exchanged."""
    named = "context-parallel-algo" if arguments.has("context-parallel-algo") else "cp-comm-type"
    kind = (arguments.text(named).split() or ["p2p"])[0]
    known = _words("contexts")
    if kind not in known:
        raise arguments.wrong(kind, f"one of {', '.join(known)}", named)
    yield "cp_comm", known[kind]
    backend = arguments.text("moe-flex-dispatcher-backend")
    if arguments.has("num-experts", "moe-token-dispatcher-type"):
        deepep = "deepep" if arguments.has("moe-enable-deepep") else "all_to_all"
        yield "dispatch", backend if backend in ("deepep", "hybridep") else deepep
    if arguments.has("num-experts"):
        yield "expert_overlap", arguments.has(PAIRED_EXCHANGES)
        yield "shared_overlap", arguments.has("moe-shared-expert-overlap")
        yield "delay_wgrad", arguments.has(PAIRED_WEIGHTS, BESIDE_WEIGHTS)


def _precision(arguments: MegatronArguments) -> AskedItems:
    if arguments.has("fp4-format"):
        yield "precision", "nvfp4"
    elif arguments.has("fp8-format", "fp8-hybrid", "fp8-e4m3"):
        mx = arguments.text("fp8-recipe") == "mxfp8"
        yield "precision", "mxfp8" if mx else "fp8"
    elif arguments.has("fp16"):
        yield "precision", "fp16"
    elif not arguments.has("bf16"):
        expected = "one of --bf16, --fp16, --fp8-format, --fp4-format: fp32 is not modelled"
        raise WorkloadError(f"{arguments.place}: no precision is given: expected {expected}")


def _recompute(arguments: MegatronArguments) -> AskedItems:
    kind = arguments.text("recompute-granularity")
    if arguments.has("recompute-activations"):
        kind = "selective"
    if arguments.has("checkpoint-activations", "deepspeed-activation-checkpointing"):
        kind = "full"  # before Megatron-LM had granularities
    if kind not in ("", "full", "selective"):
        raise arguments.wrong(kind, "full or selective", "recompute-granularity")
    modules = re.findall(r"\w+", arguments.text("recompute-modules"))
    if kind == "selective" and modules and "core_attn" not in modules:
        return  # a public recipe may say the same modules
    yield "recompute", kind or "none"
    if kind == "full" and arguments.text("recompute-method") == "block":
        yield "recompute_layers", arguments.count("recompute-num-layers", default=1)


def _placement(arguments: MegatronArguments) -> AskedItems:
    """The layout, and the schedule where ranks hold several virtual stages."""
    pp, layers = arguments.known("pipeline-model-parallel-size", 1), arguments.count("num-layers")
    chunks = arguments.count("num-virtual-stages-per-pipeline-rank", default=1)
    if arguments.has("num-layers-per-virtual-pipeline-stage"):
        chunks = layers // pp // arguments.count("num-layers-per-virtual-pipeline-stage")
    first = arguments.has("account-for-embedding-in-pipeline-split")
    last = arguments.has("account-for-loss-in-pipeline-split")
    layout = arguments.text("pipeline-model-parallel-layout")
    stages = next(iter(arguments.patterns()), "").split("|")
    if len(stages) > 1:
        yield "layout", ",".join(str(len(stage)) for stage in stages)
        chunks = max(chunks, len(stages) // pp)
    elif layout:
        yield "layout", layout
        chunks = max(chunks, len(layout_slices(layout)) // pp)
    elif arguments.has("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"):
        yield "layout", _uneven(arguments, layers, pp * chunks)
    elif first or last:
        yield "layout", "ends" if first and last else "embedding" if first else "head"
    pairs = arguments.has("num-experts") and arguments.has(PAIRED_EXCHANGES)
    looped = f"{'combined-1f1b' if pairs else 'interleaved'}:{chunks}"
    yield "schedule", looped if chunks > 1 else "1f1b"


def _uneven(arguments: MegatronArguments, layers: int, stages: int) -> str:
    """Layers of every virtual stage where the first or the last one have their own number."""
    first = arguments.count("decoder-first-pipeline-num-layers", default=0)
    last = arguments.count("decoder-last-pipeline-num-layers", default=0)
    others = stages - bool(first) - bool(last)
    share, rest = divmod(layers - first - last, max(others, 1))
    if rest or share < 1:
        raise WorkloadError(
            f"{arguments.place}: --decoder-first-pipeline-num-layers {first} and "
            f"--decoder-last-pipeline-num-layers {last} leave {layers - first - last} layers: "
            f"expected a multiple of the other {others} stages"
        )
    return ",".join(map(str, filter(None, (first, *[share] * others, last))))


def _warnings(arguments: MegatronArguments) -> Iterator[str]:
    for name, usual, priced in _words("priced_as"):
        if arguments.text(name, default=usual) != usual:
            yield f"--{name} {arguments.text(name)} is not modelled: priced as {priced}"
    for name in _words("offloaded"):
        if arguments.has(name):
            yield f"--{name}: what offloading costs and saves is not modelled"
    if not arguments.has("vocab-size", "padded-vocab-size", "pad-vocab-size-to"):
        yield "no --vocab-size is given: stepsim assumes GPT-2's 50257"
    if arguments.has("deepspeed") and not arguments.has("zero-stage"):
        yield "--deepspeed without --zero-stage: its configuration decides, no ZeRO assumed"
    overlapped, sharded = arguments.has("overlap-grad-reduce"), _zero(arguments) > 0
    if sharded and overlapped != arguments.has("overlap-param-gather"):
        yield (
            "--overlap-grad-reduce and --overlap-param-gather go together here (dp_overlap): "
            f"{'both' if overlapped else 'neither'} assumed"
        )
    if arguments.has("partition-activations"):
        yield "--partition-activations: checkpoints are priced whole on every rank"
    for rule in () if arguments.has(*_DEEPSPEED) else broken_rules(arguments.values, strict=False):
        yield f"Megatron-LM refuses these arguments: {rule}"
