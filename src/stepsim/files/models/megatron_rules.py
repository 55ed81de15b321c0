"""Megatron-LM's own arguments: how they are found in a text, and which rules they must keep.

Every `--name value` of a line counts; a YAML file may nest its keys, with or without dashes.

The rules say which arguments exclude, and which need, each other. Sources: `validate_args` of
`megatron/training/arguments.py` (commit 000c4ac), `__post_init__` of
`megatron/core/transformer/transformer_config.py` and of `megatron/core/model_parallel_config.py`,
`pipeline_parallel_layer_layout.py`, and the user guide of Megatron FSDP, all of NVIDIA/Megatron-LM.
A rule is judged where all that it speaks of is a number: a variable that nobody sets breaks none.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.workload.model.layout import StageSlice, parse_layout

FSDP_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO's stage by the name that `--data-parallel-sharding-strategy` has for it."""

_TP, _PP = "tensor-model-parallel-size", "pipeline-model-parallel-size"
_CP, _EP = "context-parallel-size", "expert-model-parallel-size"
_LAYOUT = "pipeline-model-parallel-layout"
_STAGES, _PER_STAGE = (
    "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage",
)
_OWN_ENDS = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
_COUNTED_ENDS = (
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
)
PAIRED_EXCHANGES = "overlap-moe-expert-parallel-comm"
"""Exchanges of a microbatch's experts run beside the compute of another one."""
PAIRED_WEIGHTS, BESIDE_WEIGHTS = (
    "delay-wgrad-compute",
    "overlap-dispatch-backward-with-experts-wgrad",
)
"""What runs exchanges of input gradients beside weight gradients: in pairs, and without them."""


class _UnknownError(Exception):
    """An argument that a rule speaks of has no number."""


class _Line(Noun):
    """Arguments by name; counts that are not given have Megatron-LM's default, or are unknown.

    `layout` are the virtual stages of a layout that can be read.
    """

    values: Mapping[str, str]
    layout: tuple[StageSlice, ...]

    def has(self, *names: str) -> bool:
        """Whether any of them is given."""
        return any(name in self.values for name in names)

    def text(self, name: str) -> str:
        """The value, empty where there is none."""
        return self.values.get(name, "")

    def number(self, name: str, default: int | None = None) -> int:
        """A count; raises _UnknownError."""
        text = self.values.get(name)
        if text is None and default is not None:
            return default
        if text is None or not re.fullmatch("[0-9]{1,18}", text):
            raise _UnknownError
        return int(text)

    @property
    def tp(self) -> int:
        """Ranks of tensor parallelism."""
        return max(self.number(_TP, 1), 1)

    @property
    def pp(self) -> int:
        """Stages of the pipeline."""
        return max(self.number(_PP, 1), 1)

    @property
    def cp(self) -> int:
        """Ranks that share a sequence."""
        return max(self.number(_CP, 1), 1)

    @property
    def ep(self) -> int:
        """Ranks that share the experts."""
        return max(self.number(_EP, 1), 1)

    @property
    def slices(self) -> tuple[StageSlice, ...]:
        """Virtual stages of the layout; raises _UnknownError where none can be read."""
        if not self.layout:
            raise _UnknownError
        return self.layout

    @property
    def split_layers(self) -> int:
        """Layers that are split evenly, ends that count as layers among them."""
        return self.number("num-layers") + sum(self.has(name) for name in _COUNTED_ENDS)

    @property
    def chunks(self) -> int:
        """Virtual stages of a rank."""
        if self.has(_LAYOUT):
            return max(len(self.slices) // self.pp, 1)
        if self.has(_PER_STAGE):
            return max(self.split_layers // self.pp // max(self.number(_PER_STAGE), 1), 1)
        return max(self.number(_STAGES, 1), 1)

    @property
    def replicas(self) -> int:
        """Copies that data parallelism runs; raises _UnknownError where the GPUs are not said."""
        return max(self.number("world-size") // (self.tp * self.pp * self.cp), 1)

    @property
    def microbatches(self) -> int:
        """Microbatches of a pipeline in a step."""
        samples = self.replicas * max(self.number("micro-batch-size"), 1)
        return self.number("global-batch-size") // samples


_Rule = tuple[str, Callable[[_Line], bool]]
"""A rule in words, and whether a line of arguments keeps it."""


def _excludes(first: str, *others: str) -> _Rule:
    names = " or ".join(f"--{name}" for name in others)
    return (
        f"--{first} goes without {names}",
        lambda line: not (line.has(first) and line.has(*others)),
    )


def _needs(first: str, *others: str) -> _Rule:
    names = " or ".join(f"--{name}" for name in others)
    return f"--{first} needs {names}", lambda line: not line.has(first) or line.has(*others)


def _even_split(line: _Line) -> bool:
    """Whether layers are a multiple of the stages, and of their virtual stages."""
    if line.has(_LAYOUT, *_OWN_ENDS):
        return True
    if line.has(_PER_STAGE):
        return line.split_layers % (line.pp * max(line.number(_PER_STAGE), 1)) == 0
    return line.split_layers % (line.pp * line.chunks) == 0


def _own_ends(line: _Line) -> bool:
    """Whether ends of their own size leave a multiple of the other stages and virtual stages."""
    ends = [line.number(name) for name in _OWN_ENDS if line.has(name)]
    if not ends:
        return True
    rest, stages = line.number("num-layers") - sum(ends), line.pp - len(ends)
    whole = all(count > 0 and count % line.chunks == 0 for count in ends)
    return whole and rest >= 0 and (rest % (stages * line.chunks) == 0 if stages else rest == 0)


def _whole_layout(line: _Line) -> bool:
    """Whether the layout is one of this model: ends on the ends, as many layers as there are."""
    stages = line.slices
    ends = [stage.embedding for stage in stages], [stage.head for stage in stages]
    layers = sum(stage.layers for stage in stages)
    ahead = sum(stage.prediction_layers for stage in stages)
    return (
        ends[0] == [True] + [False] * (len(stages) - 1)
        and ends[1] == [False] * (len(stages) - 1) + [True]
        and layers == line.number("num-layers", layers)
        and ahead == line.number("mtp-num-layers", 0 if line.has("num-layers") else ahead)
    )


def _prediction_layers_last(line: _Line) -> bool:
    """Whether prediction layers lie together, in the last virtual stage of a rank."""
    holders = [i for i, stage in enumerate(line.slices) if stage.prediction_layers]
    return len(holders) <= 1 and all(i >= len(line.slices) - line.pp for i in holders)


def _full_recompute(line: _Line) -> bool:
    if line.text("recompute-granularity") != "full":
        return True
    return line.text("recompute-method") in ("uniform", "block") and line.has(
        "recompute-num-layers"
    )


def _torch_fsdp(line: _Line) -> bool:
    if not line.has("use-torch-fsdp2"):
        return True
    excluded = line.has("use-distributed-optimizer", "fp16") or line.pp > 1 or line.ep > 1
    format_is = line.text("ckpt-format") or "torch_dist"
    needed = line.has("no-gradient-accumulation-fusion") and (
        line.has("untie-embeddings-and-output-weights") or not line.has("num-layers")
    )
    return needed and not excluded and format_is in ("torch_dist", "torch_dcp")


def _graphs(line: _Line) -> bool:
    named = line.text("cuda-graph-impl") not in ("", "none")
    return named or line.has("enable-cuda-graph", "external-cuda-graph")


def _known_strategy(line: _Line) -> bool:
    strategy = line.values.get("data-parallel-sharding-strategy", "no_shard")
    sharded = line.has("use-megatron-fsdp", "use-custom-fsdp")
    return strategy == "no_shard" or (strategy in FSDP_STAGES and sharded)


def _divides_experts(line: _Line) -> bool:
    """Whether ranks share experts evenly; arguments that describe a model need to say experts."""
    if line.has("num-experts"):
        return line.number("num-experts") % line.ep == 0
    return not line.has("num-layers")


_FORGIVEN = f"--sequence-parallel needs --{_TP} above 1"
"""Megatron-LM passes this argument over, with a warning of its own."""
RULES: tuple[_Rule, ...] = (
    _excludes(_LAYOUT, _STAGES, _PER_STAGE),
    _excludes(_STAGES, _PER_STAGE),
    _excludes(_LAYOUT, *_OWN_ENDS, *_COUNTED_ENDS),
    _excludes(_OWN_ENDS[0], *_COUNTED_ENDS),
    _excludes(_OWN_ENDS[1], *_COUNTED_ENDS),
    _excludes(_PER_STAGE, *_OWN_ENDS),
    (
        f"--{_LAYOUT} has a multiple of --{_PP} virtual stages",
        lambda line: len(line.slices) % line.pp == 0,
    ),
    (
        f"--{_LAYOUT} begins with E, ends with L and has the layers of the model",
        _whole_layout,
    ),
    (
        f"--{_LAYOUT} has its prediction layers together, in a rank's last virtual stage",
        _prediction_layers_last,
    ),
    (
        "--num-layers, with the ends that count, is a multiple of stages and virtual stages",
        _even_split,
    ),
    (
        f"--{_OWN_ENDS[0]} and --{_OWN_ENDS[1]} leave a multiple of the other stages",
        _own_ends,
    ),
    (
        f"virtual stages need --{_PP} above 1",
        lambda line: line.chunks == 1 or line.pp > 1,
    ),
    (
        f"virtual stages need microbatches that are a multiple of --{_PP}",
        lambda line: line.chunks == 1 or line.microbatches % line.pp == 0,
    ),
    _needs("overlap-param-gather", "overlap-grad-reduce"),
    _needs("overlap-param-gather", "use-distributed-optimizer", "use-megatron-fsdp"),
    _needs("use-megatron-fsdp", "use-distributed-optimizer"),
    _excludes("use-megatron-fsdp", "use-torch-fsdp2"),
    (
        "--use-megatron-fsdp and --ckpt-format fsdp_dtensor need each other",
        lambda line: line.has("use-megatron-fsdp") == (line.text("ckpt-format") == "fsdp_dtensor"),
    ),
    (
        f"--data-parallel-sharding-strategy is one of {', '.join(FSDP_STAGES)}, "
        "with --use-megatron-fsdp",
        _known_strategy,
    ),
    (
        f"--use-torch-fsdp2 goes without --{_PP}, --{_EP}, --fp16 and "
        "--use-distributed-optimizer, and needs --no-gradient-accumulation-fusion and "
        "--untie-embeddings-and-output-weights",
        _torch_fsdp,
    ),
    _excludes("bf16", "fp16"),
    _excludes("fp8-format", "fp4-format"),
    _needs("fp4-recipe", "fp4-format"),
    _needs("fp8-recipe", "fp8-format"),
    (
        f"--seq-length is a multiple of 2 x --{_CP}",
        lambda line: line.cp == 1 or line.number("seq-length") % (2 * line.cp) == 0,
    ),
    (
        "--max-position-embeddings is at least --seq-length",
        lambda line: line.number("max-position-embeddings") >= line.number("seq-length"),
    ),
    (
        "--recompute-granularity full needs --recompute-method uniform or block, and "
        "--recompute-num-layers",
        _full_recompute,
    ),
    (
        "--recompute-granularity selective goes without --recompute-method",
        lambda line: (
            not (
                (
                    line.text("recompute-granularity") == "selective"
                    or line.has("recompute-activations")
                )
                and line.has("recompute-method")
            )
        ),
    ),
    (
        _FORGIVEN,
        lambda line: not line.has("sequence-parallel") or line.tp > 1,
    ),
    _needs("tp-comm-overlap", "sequence-parallel"),
    (
        f"experts with --{_TP} above 1 need --sequence-parallel",
        lambda line: (
            not (line.ep > 1 or line.has("num-experts"))
            or line.tp == 1
            or line.has("sequence-parallel")
        ),
    ),
    (
        f"--{_EP} above 1 divides --num-experts and goes without --fp16",
        lambda line: line.ep == 1 or (not line.has("fp16") and _divides_experts(line)),
    ),
    (
        f"--{PAIRED_EXCHANGES} needs --{_EP} above 1, and in a pipeline virtual stages",
        lambda line: (
            not line.has(PAIRED_EXCHANGES) or (line.ep > 1 and (line.pp == 1 or line.chunks > 1))
        ),
    ),
    (
        f"--{PAIRED_EXCHANGES} goes without --recompute-granularity full",
        lambda line: not line.has(PAIRED_EXCHANGES) or line.text("recompute-granularity") != "full",
    ),
    _excludes(PAIRED_EXCHANGES, "moe-shared-expert-overlap"),
    _needs(PAIRED_WEIGHTS, PAIRED_EXCHANGES),
    _excludes(BESIDE_WEIGHTS, PAIRED_EXCHANGES, PAIRED_WEIGHTS),
    (
        "--moe-enable-deepep needs --moe-token-dispatcher-type flex",
        lambda line: (
            not line.has("moe-enable-deepep") or line.text("moe-token-dispatcher-type") == "flex"
        ),
    ),
    (
        f"--moe-token-dispatcher-type flex needs --{_EP} or --{_TP} above 1",
        lambda line: line.text("moe-token-dispatcher-type") != "flex" or line.ep * line.tp > 1,
    ),
    (
        "CUDA graphs go without --recompute-granularity full",
        lambda line: not _graphs(line) or line.text("recompute-granularity") != "full",
    ),
    _excludes("enable-cuda-graph", "external-cuda-graph"),
    (
        f"--num-attention-heads is a multiple of --{_TP}",
        lambda line: line.number("num-attention-heads") % line.tp == 0,
    ),
    (
        f"--num-query-groups is a multiple of --{_TP} (before core 0.16)",
        lambda line: (
            not line.has("group-query-attention") or line.number("num-query-groups") % line.tp == 0
        ),
    ),
    (
        f"--cp-comm-type a2a needs heads / tp that are a multiple of --{_CP}",
        lambda line: (
            line.text("cp-comm-type").split()[:1] != ["a2a"]
            or line.number("num-attention-heads") // line.tp % line.cp == 0
        ),
    ),
    (
        f"the GPUs are a multiple of --{_TP} x --{_CP} x --{_PP}",
        lambda line: line.number("world-size") % (line.tp * line.cp * line.pp) == 0,
    ),
    (
        f"the GPUs are a multiple of --expert-tensor-parallel-size x --{_EP} x --{_PP}",
        lambda line: (
            line.number("world-size")
            % max(line.number("expert-tensor-parallel-size", line.tp) * line.ep * line.pp, 1)
            == 0
        ),
    ),
    (
        "--global-batch-size is a multiple of --micro-batch-size x replicas",
        lambda line: (
            line.number("global-batch-size")
            % (max(line.number("micro-batch-size"), 1) * line.replicas)
            == 0
        ),
    ),
)
"""All rules. `world-size` among the arguments says on how many GPUs they run."""


def broken_rules(arguments: Mapping[str, str], *, strict: bool = True) -> Iterator[str]:
    """What Megatron-LM asks and the arguments do not keep, one sentence a rule.

    A rule that is forgiven is left out unless it is `strict`.
    """
    line = _Line(values=arguments, layout=layout_slices(arguments.get(_LAYOUT, "")))
    judged = (rule for rule in RULES if strict or rule[0] != _FORGIVEN)
    return (said for said, keeps in judged if not _kept(keeps, line))


def layout_slices(text: str) -> tuple[StageSlice, ...]:
    """Virtual stages of a layout in letters; none where it cannot be read."""
    try:
        return parse_layout(text).slices
    except PlanError:
        return ()


def _kept(keeps: Callable[[_Line], bool], line: _Line) -> bool:
    """Whether a line keeps a rule; one that cannot be judged counts as kept."""
    try:
        return keeps(line)
    except _UnknownError:
        return True


_FLAG = re.compile(r"--[A-Za-z][\w-]*")
_QUOTES = re.compile(r"(\([EtmL|*,0-9]*\)\*[0-9]+)|[\"'()]")
"""Quotes and a list's brackets, but not the brackets of a pipeline's layout, `(tt|)*29`."""
_ENDS = ("\\", "&&", "||", "|", ";", "&")


def line_arguments(text: str) -> Mapping[str, str]:
    """Arguments of a line by name, with dashes; a switch has an empty value."""
    return dict(_of_words(_QUOTES.sub(lambda found: found.group(1) or " ", text)))


def _of_words(text: str) -> Iterator[tuple[str, str]]:
    words = _split(text)
    for i, word in enumerate(words):
        if _FLAG.fullmatch(word):
            after = words[i + 1] if i + 1 < len(words) else ""
            value = "" if after.startswith("--") or after in _ENDS else after
            yield word[2:].replace("_", "-"), value


def _split(text: str) -> list[str]:
    """Words, `--name=value` as two."""
    words: list[str] = []
    for word in text.split():
        name, equals, value = word.partition("=")
        words += [name, value] if equals and name.startswith("--") else [word]
    return words
