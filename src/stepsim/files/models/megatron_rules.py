"""Megatron-LM's own arguments: how they are found in a text, and which rules they must keep.

Every `--name value` of a line counts; a YAML file may nest its keys, with or without dashes.

A rule is judged where all that it speaks of is a number: a variable that nobody sets breaks none.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod

from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, shipped
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
        """Whether any of them is given; `name=value` is one with this value alone."""
        said = self.values
        pairs = (name.partition("=") for name in names)
        return any(name in said and value in ("", said[name]) for name, _, value in pairs)

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

    def keeps(self, rule: "_Rule") -> bool:
        """Whether it keeps a rule; one that cannot be judged counts as kept."""
        try:
            if rule.first and not self.has(*rule.first):
                return True
            if rule.keeps:
                return bool(getattr(self, rule.keeps)())
            if rule.multiple:
                shares: int = prod(getattr(self, each) for each in rule.of)
                return self.number(rule.multiple) % shares == 0
            return not self.has(*rule.excludes) if rule.excludes else self.has(*rule.needs)
        except _UnknownError:
            return True

    # what rules ask beside, by the names that they have there

    def multiple_of_stages(self) -> bool:
        """Whether ranks have equally many virtual stages of the layout."""
        return len(self.slices) % self.pp == 0

    def whole_layout(self) -> bool:
        """Whether the layout is one of this model: ends on the ends, all layers between."""
        stages = self.slices
        ends = [stage.embedding for stage in stages], [stage.head for stage in stages]
        layers = sum(stage.layers for stage in stages)
        ahead = sum(stage.prediction_layers for stage in stages)
        return (
            ends[0] == [True] + [False] * (len(stages) - 1)
            and ends[1] == [False] * (len(stages) - 1) + [True]
            and layers == self.number("num-layers", layers)
            and ahead == self.number("mtp-num-layers", 0 if self.has("num-layers") else ahead)
        )

    def predictions_last(self) -> bool:
        """Whether prediction layers lie together, in the last virtual stage of a rank."""
        holders = [i for i, stage in enumerate(self.slices) if stage.prediction_layers]
        return len(holders) <= 1 and all(i >= len(self.slices) - self.pp for i in holders)

    def even_split(self) -> bool:
        """Whether layers are a multiple of the stages, and of their virtual stages."""
        if self.has(_LAYOUT, *_OWN_ENDS):
            return True
        if self.has(_PER_STAGE):
            return self.split_layers % (self.pp * max(self.number(_PER_STAGE), 1)) == 0
        return self.split_layers % (self.pp * self.chunks) == 0

    def own_ends(self) -> bool:
        """Whether ends of their own size leave a multiple of the other virtual stages."""
        ends = [self.number(name) for name in _OWN_ENDS if self.has(name)]
        if not ends:
            return True
        rest, stages = self.number("num-layers") - sum(ends), self.pp - len(ends)
        whole = all(count > 0 and count % self.chunks == 0 for count in ends)
        return whole and rest >= 0 and (rest % (stages * self.chunks) == 0 if stages else rest == 0)

    def pipeline_of_chunks(self) -> bool:
        """Whether several virtual stages of a rank are in a pipeline."""
        return self.chunks == 1 or self.pp > 1

    def even_chunks(self) -> bool:
        """Whether microbatches of virtual stages are a multiple of the ranks."""
        return self.chunks == 1 or self.microbatches % self.pp == 0

    def fsdp_format(self) -> bool:
        """Whether checkpoints have the format of Megatron FSDP, and of nothing else."""
        return self.has("use-megatron-fsdp") == (self.text("ckpt-format") == "fsdp_dtensor")

    def known_strategy(self) -> bool:
        """Whether Megatron FSDP has the strategy."""
        strategy = self.values.get("data-parallel-sharding-strategy", "no_shard")
        sharded = self.has("use-megatron-fsdp", "use-custom-fsdp")
        return strategy == "no_shard" or (strategy in FSDP_STAGES and sharded)

    def torch_fsdp(self) -> bool:
        """Whether torch's FSDP has all that it needs, and nothing that it does not know."""
        excluded = self.has("use-distributed-optimizer", "fp16") or self.pp > 1 or self.ep > 1
        format_is = self.text("ckpt-format") or "torch_dist"
        needed = self.has("no-gradient-accumulation-fusion") and (
            self.has("untie-embeddings-and-output-weights") or not self.has("num-layers")
        )
        return needed and not excluded and format_is in ("torch_dist", "torch_dcp")

    def even_sequence(self) -> bool:
        """Whether ranks of context parallelism have two equal pieces of a sequence each."""
        return self.cp == 1 or self.number("seq-length") % (2 * self.cp) == 0

    def positions(self) -> bool:
        """Whether there are positions for all tokens of a sequence."""
        return self.number("max-position-embeddings") >= self.number("seq-length")

    def full_recompute(self) -> bool:
        """Whether full recomputation says of which layers."""
        return self.text("recompute-method") in ("uniform", "block") and self.has(
            "recompute-num-layers"
        )

    def sequence_parallel(self) -> bool:
        """Whether sequence parallelism has several ranks."""
        return self.tp > 1

    def sequence_parallel_experts(self) -> bool:
        """Whether experts beside tensor parallelism have sequence parallelism."""
        return (
            not (self.ep > 1 or self.has("num-experts"))
            or self.tp == 1
            or self.has("sequence-parallel")
        )

    def divided_experts(self) -> bool:
        """Whether ranks share experts evenly, without fp16; a model that is described has some."""
        if self.ep == 1 or self.has("fp16"):
            return self.ep == 1
        if self.has("num-experts"):
            return self.number("num-experts") % self.ep == 0
        return not self.has("num-layers")

    def pairs_of_chunks(self) -> bool:
        """Whether paired exchanges have ranks that share experts, and virtual stages."""
        return self.ep > 1 and (self.pp == 1 or self.chunks > 1)

    def flex_of_several(self) -> bool:
        """Whether the flexible dispatcher has several ranks."""
        return self.ep * self.tp > 1

    def graphs_not_recomputed(self) -> bool:
        """Whether CUDA graphs hold no full recomputation."""
        named = self.text("cuda-graph-impl") not in ("", "none")
        graphs = named or self.has("enable-cuda-graph", "external-cuda-graph")
        return not graphs or self.text("recompute-granularity") != "full"

    def heads_by_context(self) -> bool:
        """Whether ranks that share a sequence by heads share them evenly."""
        return (
            self.text("cp-comm-type").split()[:1] != ["a2a"]
            or self.number("num-attention-heads") // self.tp % self.cp == 0
        )

    def whole_expert_gpus(self) -> bool:
        """Whether GPUs are a multiple of what a replica's experts take."""
        return (
            self.number("world-size")
            % max(self.number("expert-tensor-parallel-size", self.tp) * self.ep * self.pp, 1)
            == 0
        )

    def whole_batch(self) -> bool:
        """Whether replicas have equally many microbatches."""
        return (
            self.number("global-batch-size")
            % (max(self.number("micro-batch-size"), 1) * self.replicas)
            == 0
        )


class _Rule(Noun, forbid_unknown_fields=True):
    """A rule, as `megatron_rules.toml` has it: what `first` excludes or needs, or another one.

    A count is a `multiple` of the product of degrees.
    """

    first: Names = ()
    excludes: Names = ()
    needs: Names = ()
    multiple: str = ""
    of: Names = ()
    says: str = ""
    keeps: str = ""
    forgiven: bool = False

    @property
    def sentence(self) -> str:
        """The rule in words."""
        others = " or ".join(f"--{name}" for name in (*self.excludes, *self.needs))
        verb = "goes without" if self.excludes else "needs"
        return self.says or f"--{self.first[0]} {verb} {others}".replace("=", " ")


def megatron_rules() -> tuple[_Rule, ...]:
    """All rules. `world-size` among the arguments says on how many GPUs they run."""
    return shipped(__file__, "megatron_rules.toml", dict[str, tuple[_Rule, ...]])["rule"]


def broken_rules(arguments: Mapping[str, str], *, strict: bool = True) -> Iterator[str]:
    """What Megatron-LM asks and the arguments do not keep, one sentence a rule.

    A rule that is forgiven is left out unless it is `strict`.
    """
    line = _Line(values=arguments, layout=layout_slices(arguments.get(_LAYOUT, "")))
    judged = (rule for rule in megatron_rules() if strict or not rule.forgiven)
    return (rule.sentence for rule in judged if not line.keeps(rule))


def layout_slices(text: str) -> tuple[StageSlice, ...]:
    """Virtual stages of a layout in letters; none where it cannot be read."""
    try:
        return parse_layout(text).slices
    except PlanError:
        return ()


_ARGUMENT = re.compile(r"(?<!\S)--([A-Za-z][\w-]*)(?:=(\S*)|\s+(?!--)(\S+)|(?!\S))")
"""An argument, and its value behind `=` or behind a space."""
_QUOTES = re.compile(r"(\([EtmL|*,0-9]*\)\*[0-9]+)|[\"'()]")
"""Quotes and a list's brackets, but not the brackets of a pipeline's layout, `(tt|)*29`."""
_ENDS = ("\\", "&&", "||", "|", ";", "&")


def line_arguments(text: str) -> Mapping[str, str]:
    """Arguments of a line by name, with dashes; a switch has an empty value."""
    plain = _QUOTES.sub(lambda found: found.group(1) or " ", text)
    return {
        name.replace("_", "-"): own or ("" if after in _ENDS else after)
        for name, own, after in _ARGUMENT.findall(plain)
    }
