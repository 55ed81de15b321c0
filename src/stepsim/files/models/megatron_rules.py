"""Which rules Megatron-LM's own arguments must keep.

A rule is judged where all that it speaks of is a number: a variable that nobody sets breaks none.
"""

from collections.abc import Iterator
from math import isnan, nan

from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, shipped
from stepsim.files.models.scripts import Arguments
from stepsim.files.reading import number_of
from stepsim.workload.model.layout import Slices, parse_layout

FSDP_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO's stage by the name that `--data-parallel-sharding-strategy` has for it."""

_LAYOUT = "pipeline-model-parallel-layout"
_PER_STAGE = "num-layers-per-virtual-pipeline-stage"
_DEGREES = ("tensor-model", "context", "pipeline-model", "expert-model")
_OWN_ENDS = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
PAIRED_EXCHANGES = "overlap-moe-expert-parallel-comm"
"""Exchanges of a microbatch's experts run beside the compute of another one."""
PAIRED_WEIGHTS, BESIDE_WEIGHTS = (
    "delay-wgrad-compute",
    "overlap-dispatch-backward-with-experts-wgrad",
)
"""What runs exchanges of input gradients beside weight gradients: in pairs, and without them."""


class _Line(Noun):
    """Arguments by name, and `layout`, the virtual stages of a layout that can be read.

    A number that nobody knows is nan: no comparison with it holds, so that it breaks no rule.
    """

    values: Arguments
    layout: Slices

    def has(self, *names: str) -> bool:
        """Whether any of them is given; `name=value` is one with this value alone."""
        said = self.values
        pairs = (name.partition("=") for name in names)
        return any(name in said and value in ("", said[name]) for name, _, value in pairs)

    def number(self, name: str, default: float = nan) -> float:
        """A count; one that is not given has Megatron-LM's default, or nobody knows it."""
        return number_of(self.values[name]) if name in self.values else default

    def degrees(self) -> Iterator[float]:
        """Ranks of tensor parallelism, context parallelism, the pipeline, and the experts."""
        return (max(self.number(f"{name}-parallel-size", 1), 1) for name in _DEGREES)


def _broken_of_stages(line: _Line) -> dict[str, bool]:
    """What is wrong with virtual stages and microbatches, by the names that rules have for it."""
    tp, cp, pp, ep = line.degrees()
    ends = (line.has(f"account-for-{end}-in-pipeline-split") for end in ("embedding", "loss"))
    split = line.number("num-layers") + sum(ends)
    per_stage = max(line.number(_PER_STAGE, 1), 1)
    chunks = max(line.number("num-virtual-stages-per-pipeline-rank", 1), 1)
    if line.has(_LAYOUT):
        chunks = max((len(line.layout) or nan) // pp, 1)
    elif line.has(_PER_STAGE):
        chunks = max(split // pp // per_stage, 1)
    parts = per_stage if line.has(_PER_STAGE) else chunks
    replicas = max(line.number("world-size") // (tp * cp * pp), 1)
    batch = line.number("global-batch-size")
    samples = replicas * max(line.number("micro-batch-size"), 1)
    holders = [i for i, stage in enumerate(line.layout) if stage.prediction_layers]
    return {
        "layout beside ranks": len(line.layout) % pp > 0,
        "layout of another model": bool(line.layout) and _is_of_another(line),
        "predictions apart": len(holders) > 1 or any(i < len(line.layout) - pp for i in holders),
        "uneven split": not line.has(_LAYOUT, *_OWN_ENDS) and split % (pp * parts) > 0,
        "uneven rest": _leaves_uneven(line, pp, chunks),
        "chunks of one stage": chunks > 1 and pp == 1,
        "uneven chunks": chunks > 1 and batch // samples % pp > 0,
        "pairs without chunks": ep == 1 or (ep > 1 and pp > 1 and chunks == 1),
        "uneven batch": batch % samples > 0,
    }


def _is_of_another(line: _Line) -> bool:
    """Whether a layout is not one of this model: ends on the ends, all layers between."""
    stages = line.layout
    if [stage.embedding for stage in stages] != [True] + [False] * (len(stages) - 1):
        return True
    if [stage.head for stage in stages] != [False] * (len(stages) - 1) + [True]:
        return True
    layers = sum(stage.layers for stage in stages)
    ahead = sum(stage.prediction_layers for stage in stages)
    more = layers - line.number("num-layers", layers)
    usual = 0 if line.has("num-layers") else ahead
    return abs(more) > 0 or (more == 0 and abs(ahead - line.number("mtp-num-layers", usual)) > 0)


def _leaves_uneven(line: _Line, pp: float, chunks: float) -> bool:
    """Whether ends of their own size leave no multiple of the other virtual stages."""
    ends = [line.number(name) for name in _OWN_ENDS if line.has(name)]
    rest, stages = line.number("num-layers") - sum(ends), pp - len(ends)
    if not ends or isnan(rest + pp + chunks):
        return False
    over = rest % (stages * chunks) if stages else rest
    return over != 0 or rest < 0 or any(count < 1 or count % chunks > 0 for count in ends)


def _broken_of_ranks(line: _Line) -> dict[str, bool]:
    """What ranks do not divide, by the names that rules have for it."""
    tp, cp, pp, ep = line.degrees()
    heads, sequence = line.number("num-attention-heads"), line.number("seq-length")
    gpus, of_experts = line.number("world-size"), line.number("expert-tensor-parallel-size", tp)
    sparse, said = line.has("num-experts"), line.values
    shared_out = line.number("num-experts") % ep > 0 if sparse else line.has("num-layers")
    return {
        "uneven sequence": cp > 1 and sequence % (2 * cp) > 0,
        "few positions": line.number("max-position-embeddings") < sequence,
        "no tensor ranks": tp == 1,
        "experts without sequence parallelism": (ep > 1 or (ep == 1 and sparse))
        and tp > 1
        and not line.has("sequence-parallel"),
        # a model that is described has experts
        "uneven experts": ep > 1 and (line.has("fp16") or shared_out),
        "flex alone": ep * tp == 1,
        "uneven heads": heads % tp > 0,
        "uneven query groups": line.number("num-query-groups") % tp > 0,
        "uneven heads by context": said.get("cp-comm-type", "").split()[:1] == ["a2a"]
        and heads // tp % cp > 0,
        "uneven GPUs": gpus % (tp * cp * pp) > 0,
        "uneven GPUs of experts": tp > 0 and gpus % max(of_experts * ep * pp, 1) > 0,
    }


def _broken_of_words(line: _Line) -> dict[str, bool]:
    """What does not go together of switches and words, by the names that rules have for it."""
    _, _, pp, ep = line.degrees()
    has, said = line.has, line.values
    strategy = said.get("data-parallel-sharding-strategy", "no_shard")
    form = said.get("ckpt-format", "")
    sharded = has("use-megatron-fsdp", "use-custom-fsdp")
    tied = has("num-layers") and not has("untie-embeddings-and-output-weights")
    lacks = tied or not has("no-gradient-accumulation-fusion")
    lacks |= (form or "torch_dist") not in ("torch_dist", "torch_dcp")
    graphs = has("enable-cuda-graph", "external-cuda-graph")
    graphs |= said.get("cuda-graph-impl", "") not in ("", "none")
    methods = "recompute-method=uniform", "recompute-method=block"
    return {
        "format of FSDP": has("use-megatron-fsdp") != (form == "fsdp_dtensor"),
        "unknown strategy": strategy != "no_shard" and not (strategy in FSDP_STAGES and sharded),
        "torch FSDP": has("use-distributed-optimizer", "fp16")
        or pp > 1
        or (pp == 1 and (ep > 1 or (ep == 1 and lacks))),
        "full recomputation": not has(*methods) or not has("recompute-num-layers"),
        "graphs recomputed": graphs and has("recompute-granularity=full"),
    }


class _Rule(Noun, forbid_unknown_fields=True):
    """A rule, as `megatron_rules.toml` has it: what `first` excludes or needs, or another one.

    Of another one, `broken` is what breaks it.
    """

    first: Names = ()
    excludes: Names = ()
    needs: Names = ()
    says: str = ""
    broken: str = ""
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


def broken_rules(arguments: Arguments, *, strict: bool = True) -> Iterator[str]:
    """What Megatron-LM asks and the arguments do not keep, one sentence a rule.

    A rule that is forgiven is left out unless it is `strict`.
    """
    line = _Line(values=arguments, layout=layout_slices(arguments.get(_LAYOUT, "")))
    broken = {**_broken_of_stages(line), **_broken_of_ranks(line), **_broken_of_words(line)}
    for rule in megatron_rules():
        if (rule.forgiven and not strict) or (rule.first and not line.has(*rule.first)):
            continue
        lacks = bool(rule.needs) and not line.has(*rule.needs)
        if lacks or line.has(*rule.excludes) or broken.get(rule.broken):
            yield rule.sentence


def layout_slices(text: str) -> Slices:
    """Virtual stages of a layout in letters; none where it cannot be read."""
    try:
        return parse_layout(text).slices
    except PlanError:
        return ()
