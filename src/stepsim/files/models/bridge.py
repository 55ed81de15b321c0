"""A plan as overrides of Megatron-Bridge's configuration, written and read.

An override is `group.field=value`, as its training scripts take them behind a recipe. The fields
are those of the guide "Megatron-LM to Megatron Bridge" and of `megatron/bridge/training/config.py`
in NVIDIA-NeMo/Megatron-Bridge. They mean what Megatron-LM's arguments mean, so that both ways go
through these. Everything that a recipe may set is written, also what is off.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stepsim.files.models.megatron_words import megatron_arguments

_KEYS = {
    "tensor-model-parallel-size": "model.tensor_model_parallel_size",
    "pipeline-model-parallel-size": "model.pipeline_model_parallel_size",
    "context-parallel-size": "model.context_parallel_size",
    "cp-comm-type": "model.cp_comm_type",
    "expert-model-parallel-size": "model.expert_model_parallel_size",
    "expert-tensor-parallel-size": "model.expert_tensor_parallel_size",
    "moe-token-dispatcher-type": "model.moe_token_dispatcher_type",
    "num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "pipeline-model-parallel-layout": "model.pipeline_model_parallel_layout",
    "account-for-embedding-in-pipeline-split": "model.account_for_embedding_in_pipeline_split",
    "account-for-loss-in-pipeline-split": "model.account_for_loss_in_pipeline_split",
    "sequence-parallel": "model.sequence_parallel",
    "recompute-granularity": "model.recompute_granularity",
    "recompute-modules": "model.recompute_modules",
    "recompute-method": "model.recompute_method",
    "recompute-num-layers": "model.recompute_num_layers",
    "cpu-offloading-num-layers": "model.cpu_offloading_num_layers",
    "attention-backend": "model.attention_backend",
    "cuda-graph-impl": "model.cuda_graph_impl",
    "seq-length": "model.seq_length",
    "micro-batch-size": "train.micro_batch_size",
    "global-batch-size": "train.global_batch_size",
    "use-distributed-optimizer": "ddp.use_distributed_optimizer",
    "overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "overlap-param-gather": "ddp.overlap_param_gather",
    "use-megatron-fsdp": "ddp.use_megatron_fsdp",
    "data-parallel-sharding-strategy": "ddp.data_parallel_sharding_strategy",
    "ckpt-format": "checkpoint.ckpt_format",
    "tp-comm-overlap": "comm_overlap.tp_comm_overlap",
}
_ARGUMENTS = {key: name for name, key in _KEYS.items()}
_OFF = {
    "context-parallel-size": "1",
    "expert-model-parallel-size": "1",
    "num-virtual-stages-per-pipeline-rank": "null",
    "pipeline-model-parallel-layout": "null",
    "account-for-embedding-in-pipeline-split": "false",
    "account-for-loss-in-pipeline-split": "false",
    "sequence-parallel": "false",
    "recompute-granularity": "null",
    "recompute-method": "null",
    "recompute-num-layers": "null",
    "use-distributed-optimizer": "false",
    "overlap-grad-reduce": "false",
    "overlap-param-gather": "false",
    "use-megatron-fsdp": "false",
    "cuda-graph-impl": "none",
}
"""What a recipe may have set, as it is where a plan asks for none of it."""

_PRECISIONS = {
    ("--bf16",): "bf16_mixed",
    ("--fp16",): "fp16_mixed",
    ("--bf16", "--fp8-format hybrid"): "bf16_with_fp8_delayed_scaling_mixed",
    ("--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"): "bf16_with_mxfp8_mixed",
    ("--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"): "bf16_with_nvfp4_mixed",
}
_OF_PRECISION = re.compile("--(bf16|fp16|fp8-|fp4-).*")
_ALSO = {"seq-length": "dataset.sequence_length"}
_OVERRIDE = re.compile(r"\+{0,2}([a-z_]+(?:\.[a-z_0-9]+)?)=(.*)", re.DOTALL)
_NOTHING = ("null", "none", "false", "~", "")


def bridge_plan(arguments: Sequence[str], chunks: int) -> tuple[str, ...]:
    """Overrides of a plan's Megatron-LM arguments; `chunks` are the virtual stages of a rank."""
    return tuple(_overrides(arguments, chunks))


def _overrides(arguments: Sequence[str], chunks: int) -> Iterator[str]:
    line = " ".join(text for text in arguments if not _OF_PRECISION.fullmatch(text))
    values = {**_OFF, **megatron_arguments(Path(), line)}
    if chunks > 1:  # beside a layout too: a recipe may have set another number
        values["num-virtual-stages-per-pipeline-rank"] = str(chunks)
    if "enable-cuda-graph" in values:
        values["cuda-graph-impl"] = "local"
    for name, key in _KEYS.items():
        if name in values:
            value = values[name] or "true"
            if name == "recompute-modules":
                value = f"[{','.join(value.split())}]"
            yield f"'{key}=\"{value}\"'" if "(" in value or "|" in value else f"{key}={value}"
        if name in values and name in _ALSO:
            yield f"{_ALSO[name]}={values[name]}"
    if "moe-enable-deepep" in values:
        yield "model.moe_flex_dispatcher_backend=deepep"
    if "cpu-offloading-num-layers" in values:
        yield "model.cpu_offloading=true"
    precision = tuple(text for text in arguments if _OF_PRECISION.fullmatch(text))
    yield f"mixed_precision={_PRECISIONS[precision]}"


def is_bridge(text: str) -> bool:
    """Whether a text holds overrides of Megatron-Bridge."""
    return re.search(r"(^|[\s'\"+])model\.tensor_model_parallel_size=", text) is not None


def bridge_arguments(text: str) -> Mapping[str, str]:
    """Megatron-LM's arguments, by name, of a text's overrides; others are passed over."""
    return dict(_translated(_words(text)))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that nobody closes
        return text.split()


def _translated(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    matches = (match for match in map(_OVERRIDE.fullmatch, words) if match)
    given = {match.group(1): match.group(2) for match in matches}
    layout = given.get("model.pipeline_model_parallel_layout", "").strip("'\"")
    for key, typed in given.items():
        name, value = _ARGUMENTS.get(key, ""), typed.strip("'\"")
        said_by_layout = name == "num-virtual-stages-per-pipeline-rank" and layout
        if not name or value.lower() in _NOTHING or (said_by_layout and layout != "null"):
            continue
        yield name, "" if value.lower() == "true" else value
    if given.get("model.moe_flex_dispatcher_backend") == "deepep":
        yield "moe-enable-deepep", ""
    if "ddp.use_megatron_fsdp" in given and given["ddp.use_megatron_fsdp"].lower() == "true":
        yield "no-gradient-accumulation-fusion", ""
    yield from _precision(given.get("mixed_precision", "bf16_mixed"))


def _precision(recipe: str) -> Iterator[tuple[str, str]]:
    """Arguments of a recipe's precision by what its name speaks of."""
    name = recipe.strip("'\"")
    yield ("fp16", "") if name.startswith("fp16") else ("bf16", "")
    if "nvfp4" in name:
        yield from (("fp4-format", "e2m1"), ("fp4-recipe", "nvfp4"))
    elif "mxfp8" in name:
        yield from (("fp8-format", "e4m3"), ("fp8-recipe", "mxfp8"))
    elif "fp8" in name:
        yield "fp8-format", "hybrid"
