"""A plan as a job of torchtitan, written and read.

Sections and keys are those of `JobConfig` in `torchtitan/config/job_config.py` of
pytorch/torchtitan, in its releases 0.2, which read TOML files. Its meanings: a local batch is all
that a replica runs at once; a pipeline cuts it in microbatches; FSDP shards over replicas and the
ranks of a sequence; `alltoall` passes keys and values on from rank to rank, as a ring does.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain
from pathlib import Path

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import Names, Values, shipped
from stepsim.files.models.fields import Fields, Keys
from stepsim.files.shell.words import Environment
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import (
    AttentionKernel,
    Precision,
)
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.layout import Slices, StageSlice
from stepsim.workload.model.model import AskedItems, AskedOptions
from stepsim.workload.plan import Plan

_SCHEDULE = "parallelism.pipeline_parallel_schedule"
# Sections that degrees stood in before release 0.1, the later one last.
_OLD = ("training", "experimental")


def torchtitan_model(name: str, flavor: str) -> str:
    """The public model that torchtitan calls by a name and a flavor; empty for others."""
    called = (name.lower(), flavor.lower())
    return next((m for m, (n, f) in _words("models").items() if (n, f.lower()) == called), "")


def torchtitan_job(path: Path, text: str, environment: Environment) -> Keys:
    """Sections of a job in a registry of 2026: a function that returns its configuration.

    Of several functions the `environment` says which, as CONFIG. Nothing is run. Raises
    WorkloadError.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}: not valid Python: {error}") from None
    functions = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
    returned = {name: _returned(function) for name, function in functions.items()}
    jobs = {name: job for name, job in returned.items() if "model_spec" in job}
    chosen = environment.get("CONFIG", next(iter(jobs)) if len(jobs) == 1 else "")
    if chosen not in jobs:
        expected = f"one of {', '.join(jobs)} (--env CONFIG=NAME)"
        raise WorkloadError(bad_value(str(path), "CONFIG", chosen, expected))
    job = jobs[chosen]
    names = (name for name, _ in _words("models").values() if chosen.startswith(name))
    folder = path.absolute().parent.name
    job["model"] = {
        "name": max(names, key=len, default=folder),
        "flavor": job["model_spec"].get("0"),
    }
    if "Float8" in ast.unparse(functions[chosen].body[-1]):
        job["model"]["converters"] = [_words("converters")["fp8"]]
    return job


def _returned(function: ast.FunctionDef) -> Values:
    """The sections of keywords that a function returns, of which only plain values count.

    Values without a name are called by their place: `model_spec=model_registry("8B")` is a section
    with `"0": "8B"`.
    """
    returned = function.body[-1]
    if not isinstance(returned, ast.Return) or not isinstance(returned.value, ast.Call):
        return {}
    sections: Values = {}
    for keyword in returned.value.keywords:
        call = keyword.value
        if keyword.arg and isinstance(call, ast.Call):
            given = [*enumerate(call.args), *((each.arg, each.value) for each in call.keywords)]
            sections[keyword.arg] = {
                str(name): value.value for name, value in given if isinstance(value, ast.Constant)
            }
    return sections


def _words(table: str) -> Keys:
    """Words of torchtitan by what they are called here, as `torchtitan.toml` has them."""
    return shipped(__file__, "torchtitan.toml", dict[str, Values])[table]


def _called(table: str) -> Keys:
    """What words of torchtitan are called here."""
    return {word: name for name, word in _words(table).items()}


def torchtitan_lacks(plan: Plan, architecture: Architecture, compiled: bool) -> Iterator[str]:
    """Why torchtitan cannot run a plan of a model, one sentence each."""
    if plan.zero not in (0, 3):
        yield f"zero is {plan.zero}: it replicates (0) or shards with FSDP (3)"
    if plan.zero == 0 and (plan.dp == 1 or plan.cp > 1):
        yield "zero is 0: it shards over the ranks of a sequence, and replicates two or more"
    if plan.order not in _words("schedules"):
        yield f"no schedule {plan.order}"
    if plan.recompute not in _words("checkpoints") or plan.recompute_layers is not None:
        yield f"no recomputation {plan.recompute} of some layers or of core attention alone"
    if plan.precision not in (Precision.BF16, *_words("converters")):
        yield f"no precision {plan.precision}"
    if plan.cp > 1 and plan.context not in _words("rotations"):
        yield f"no context parallelism by {plan.context}"
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "tensor parallelism splits norms too: no plan without sequence parallelism"
    if plan.tp_comm_overlap and plan.tp > 1 and not compiled:
        yield "tp_comm_overlap needs a compiled model"
    if plan.cuda_graph:
        yield "no CUDA graphs"
    if plan.attention is not AttentionKernel.FLASH:
        yield f"no {plan.attention} attention"
    may_be = (plan.tp, 1) if plan.ep > 1 else (plan.tp,)
    if architecture.is_sparse and plan.expert_degree not in may_be:
        yield f"expert_tp is {plan.expert_degree}: tp, or 1 where experts are shared out"
    if architecture.prediction_layers and plan.pp > 1:
        yield "prediction layers are not placed on a pipeline"
    yield from _lacks_of_experts(plan)


def _lacks_of_experts(plan: Plan) -> Iterator[str]:
    """Why torchtitan cannot exchange tokens of experts as a plan does, one sentence each."""
    if plan.ep == 1:
        return
    backends = _words("backends")
    if plan.dispatch not in backends:
        yield f"no dispatch {plan.dispatch}: expected {', '.join(backends)}"
    overlaps = {
        "expert_overlap": plan.runs_pairs,
        "shared_overlap": plan.shared_overlap,
        "delay_wgrad": plan.delay_wgrad,
    }
    yield from (f"no {name}" for name, asked in overlaps.items() if asked)


def torchtitan_plan(plan: Plan, architecture: Architecture, compiled: bool) -> Names:
    """The lines of a job's TOML file, of a plan that torchtitan can run."""
    local = plan.global_batch // plan.dp if plan.pp > 1 else plan.microbatch_size
    parts = (
        _model(plan, architecture),
        ("[training]", f"local_batch_size = {local}", f"global_batch_size = {plan.global_batch}"),
        (f"seq_len = {plan.sequence}", 'mixed_precision_param = "bfloat16"'),
        _parallelism(plan, architecture),
        ("[activation_checkpoint]", *_words("checkpoints")[plan.recompute]),
        ("[compile]", f"enable = {str(compiled).lower()}"),
        ('components = ["model", "loss"]',) if compiled else (),
    )
    return tuple(chain.from_iterable(parts))


def _model(plan: Plan, architecture: Architecture) -> Iterator[str]:
    known = _words("models").get(architecture.name)
    converter = _words("converters").get(plan.precision)
    if known or converter:
        yield "[model]"
    if known:
        yield f'name = "{known[0]}"'
        yield f'flavor = "{known[1]}"'
    if converter:
        yield f'converters = ["{converter}"]'
    if plan.precision is Precision.MXFP8:
        yield f"[{converter}]"
        yield 'recipe_name = "mxfp8_cublas"'


def _parallelism(plan: Plan, architecture: Architecture) -> Iterator[str]:
    shards = max(plan.shards // plan.cp, 1) if plan.zero else 1
    yield "[parallelism]"
    yield f"data_parallel_replicate_degree = {plan.dp // shards}"
    yield f"data_parallel_shard_degree = {shards}"
    yield f'fsdp_reshard_after_forward = "{"always" if plan.reshard else "never"}"'
    yield f"tensor_parallel_degree = {plan.tp}"
    yield f"enable_async_tensor_parallel = {str(plan.tp_comm_overlap and plan.tp > 1).lower()}"
    yield f"context_parallel_degree = {plan.cp}"
    if plan.cp > 1:
        rotation = _words("rotations")[plan.context]
        yield f'context_parallel_rotate_method = "{rotation}"'
    yield f"expert_parallel_degree = {plan.ep}"
    if plan.ep > 1:
        yield f"expert_tensor_parallel_degree = {plan.expert_degree}"
        backend = _words("backends")[plan.dispatch]
        yield f'expert_parallel_comm_backend = "{backend}"'
    yield f"pipeline_parallel_degree = {plan.pp}"
    if plan.pp > 1:
        yield from _pipeline(plan, stage_slices(architecture, plan))


def _pipeline(plan: Plan, slices: Slices) -> Iterator[str]:
    looped = plan.chunks > 1 and not plan.order.chunks
    schedule = "Interleaved1F1B" if looped else _words("schedules")[plan.order]
    yield f'pipeline_parallel_schedule = "{schedule}"'
    yield f"pipeline_parallel_microbatch_size = {plan.microbatch_size}"
    counts = [stage.layers for stage in slices]
    inner = counts[1:-1] or [max(counts)]
    fewer = inner[0] - counts[0], inner[0] - counts[-1]
    if len(set(inner)) == 1 and min(fewer) >= 0:
        yield f"pipeline_parallel_first_stage_less_layers = {fewer[0]}"
        yield f"pipeline_parallel_last_stage_less_layers = {fewer[1]}"
        yield f"pipeline_parallel_layers_per_stage = {inner[0]}"
    else:
        yield "module_fqns_per_model_part = ["
        ends = accumulate(counts)
        yield from (f"  {_modules(*part)}," for part in zip(slices, ends, strict=True))
        yield "]"


def _modules(stage: StageSlice, end: int) -> str:
    """Names of a stage's modules as a list of TOML."""
    layers = (f"layers.{layer}" for layer in range(end - stage.layers, end))
    first, last = ["tok_embeddings"] * stage.embedding, ["norm", "output"] * stage.head
    return json.dumps([*first, *layers, *last])


def torchtitan_asked(source: str, values: Keys, depth: int) -> AskedOptions:
    """What a job asks of a step of a model with `depth` layers, as people type options.

    Raises WorkloadError naming the key.
    """
    return dict(chain.from_iterable(torchtitan_parts(source, values, depth)))


def torchtitan_parts(
    source: str, values: Keys, depth: int
) -> Iterator[Iterable[tuple[str, object]]]:
    """What a job asks, part by part: each raises WorkloadError for its own keys alone."""
    job = _job(source, values)
    degrees = job.part("torchtitan_degrees")
    yield degrees.items()
    yield _read_batch(job, degrees["pp"])
    yield _read_sharding(job, degrees)
    yield _read_exchanges(job, degrees)
    if degrees["pp"] > 1:
        yield _read_pipeline(job, degrees["pp"], depth)
    yield _read_checkpoint(job)
    yield _read_kernels(job)


def _read_exchanges(job: Fields, degrees: Mapping[str, int]) -> AskedItems:
    if degrees["ep"] > 1:
        yield "expert_tp", job.count("parallelism.expert_tensor_parallel_degree", default=1)
        key = "parallelism.expert_parallel_comm_backend"
        yield "dispatch", job.choice(key, _called("backends"), default="standard")
    yield "tp_comm_overlap", job.raw("parallelism.enable_async_tensor_parallel") is True
    yield "cuda_graph", False
    if degrees["cp"] > 1:
        key = "parallelism.context_parallel_rotate_method"
        yield "cp_comm", job.choice(key, _called("rotations"), default="allgather")


def _read_kernels(job: Fields) -> AskedItems:
    converters = job.raw("model.converters") or []
    named = " ".join(map(str, converters)) if isinstance(converters, list) else str(converters)
    float8 = "float8" in named or job.raw("float8.enable_float8_linear") is True
    yield "precision", "mxfp8" if "mx" in named else "fp8" if float8 else "bf16"
    parts = job.items("compile.components")
    compiled = job.raw("compile.enable") is True and (parts is None or "model" in parts)
    compiled = compiled or job.raw("training.compile") is True
    if job.raw("training.dtype") == "bfloat16":
        yield "states", "bf16"
    yield "framework", "torch-fsdp-compiled" if compiled else "torch-fsdp-eager"


def _job(source: str, values: Keys) -> Fields:
    """The sections of a job; degrees may stand in the sections of old releases."""
    whole = Fields(place=source, values=values)
    sections = {name: whole.inside(name).values for name in values}
    parallel: Values = {}
    for name in (*_OLD, "parallelism"):
        parallel |= sections.get(name, {})
    return Fields(place=source, values={**sections, "parallelism": parallel})


def _read_batch(job: Fields, pp: int) -> AskedItems:
    """The batch of all replicas, else the microbatches of one: a job may leave replicas open."""
    local, parts, size, sequence = job.part("torchtitan_batch").values()
    size = local if pp == 1 else max(local // parts, 1) if parts else size
    yield "microbatch_size", size
    yield "sequence", sequence
    whole = job.count("training.global_batch_size", default=-1, least=-1)
    if whole > 0:
        yield "global_batch", whole
    else:
        yield "microbatches", max(local // size, 1)


def _read_sharding(job: Fields, degrees: Mapping[str, int]) -> AskedItems:
    replicas = job.count("parallelism.data_parallel_replicate_degree", default=1)
    keys = ("parallelism.data_parallel_shard_degree", "training.data_parallel_degree")
    shards = job.count(*keys, default=-1, least=-1)  # the latter before there were replicas
    yield from sharding(shards, replicas, degrees)
    always = {"always": True, "never": False, "default": degrees["pp"] == 1}
    yield "reshard", job.choice("parallelism.fsdp_reshard_after_forward", always, default="default")


def sharding(shards: int, replicas: int, degrees: Mapping[str, int]) -> AskedItems:
    """GPUs, and over which of them FSDP shards; `shards` are -1 where a job leaves them open."""
    if shards > 0:
        split = degrees["tp"] * degrees["cp"] * degrees["pp"]
        yield "npus", split * replicas * shards
    sharded = shards != 1 or degrees["cp"] > 1
    yield "zero", 3 if sharded or replicas == 1 else 0
    if shards > 0 and replicas > 1 and sharded:
        yield "shard_ranks", shards * degrees["cp"]


def _read_pipeline(job: Fields, pp: int, depth: int) -> AskedItems:
    stages = _read_stages(job, pp, depth)
    yield "layout", ",".join(map(str, stages))
    schedule = job.choice(_SCHEDULE, _words("read_schedules"), default="1F1B")
    looped = f"interleaved:{max(len(stages) // pp, 2)}"
    yield "schedule", looped if schedule == "interleaved" else schedule


def _read_stages(job: Fields, pp: int, depth: int) -> list[int]:
    """Layers of every virtual stage: of the modules named, else of the layers a stage has.

    These are even with so many more at the ends as they have less, longer ones first.
    """
    parts = job.raw("parallelism.module_fqns_per_model_part")
    if isinstance(parts, list) and all(isinstance(part, list) for part in parts):
        return [sum(str(name).startswith("layers.") for name in part) for part in parts]
    first, last = (
        job.count(f"parallelism.pipeline_parallel_{end}_stage_less_layers", default=1, least=0)
        for end in ("first", "last")
    )
    looped = str(job.raw(_SCHEDULE) or "1F1B").lower() not in ("1f1b", "gpipe")
    count = pp * (2 if looped else 1)
    if share := job.some("parallelism.pipeline_parallel_layers_per_stage"):
        count = -(-(depth + first + last) // share)
    if count > depth + first + last:
        raise WorkloadError(
            f"{job.place}: parallelism: {count} virtual stages for {depth} layers: expected at "
            "most one each"
        )
    share, longer = divmod(depth + first + last, count)
    counts = [share + (stage < longer) for stage in range(count)]
    counts[0] -= first
    counts[-1] -= last
    return counts


def _read_checkpoint(job: Fields) -> AskedItems:
    """Recomputation; torchtitan's choice of every n-th layer is not known here."""
    kinds = _words("read_checkpoints")
    kind = job.choice("activation_checkpoint.mode", kinds, default="selective")
    key = "activation_checkpoint.selective_ac_option"
    option = str(job.raw(key) or "2")
    if kind == "operators" and option != "op":
        raise job.wrong(option, "op: layers by number are not known", key)
    yield "recompute", kind
