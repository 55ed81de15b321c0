"""A value of every option that can be asked of a step, and what it needs to have an effect."""

from typing import Any

from stepsim.base.option import Panel
from stepsim.options import OPTIONS

TYPED: dict[str, Any] = {
    "npus": 128,
    "pp": 2,
    "tp": 4,
    "cp": 2,
    "ep": 4,
    "expert_tp": 2,
    "sequence": 8192,
    "precision": "fp8",
    "recipe": False,
    "recompute": "full",
    "recompute_layers": 1,
    "states": "bf16",
    "loss_chunks": 8,
    "layout": "4+2",
    "zero": 3,
    "shard_ranks": 4,
    "reshard": False,
    "sequence_parallel": False,
    "cp_comm": "all_to_all",
    "attention": "unfused",
    "dispatch": "deepep",
    "expert_overlap": True,
    "shared_overlap": True,
    "delay_wgrad": True,
    "packed": 512,
    "tp_comm_overlap": True,
    "cuda_graph": True,
    "device": "b200",
    "framework": "megatron-deepspeed",
    "microbatches": 8,
    "global_batch": 64,
    "microbatch_size": 2,
    "rank_order": "pp-tp-dp",
    "ep_layout": "folded",
    "placement": "packed",
    "schedule": "interleaved:2",
    "chunks": 4,
    "p2p": "eager",
    "warmup_flush": True,
    "deallocate_outputs": True,
    "group_size": 8,
    "memory_limit": 1,
    "stage_rows": "every",
    "dp_overlap": True,
    "dp_bucket": "400 MB",
    "contention": "fair",
    "overlap_cost": "8",
    "algorithm": "all_reduce=double_binary_tree",
    "expert_load": [1, 2, 3, 4],
    "slow": "0-3:2",
    "compute_scale": 0.5,
    "fill_placeholders": True,
    "host_overhead": "250 us",
    "get_batch": "1 ms",
    "loss_time": "1 ms",
    "activation_size": "1 GiB",
    "engine": "levels",
}
"""A value of every option that people can give without a file."""
OF_MODELS = {name for name, option in OPTIONS.items() if option.panel is Panel.MODEL}
"""What only a model can be asked: a workload file has it in its numbers."""
OF_FILES = sorted(TYPED.keys() - OF_MODELS)
BESIDE: dict[str, dict[str, Any]] = {
    "group_size": {"schedule": "interleaved:2", "microbatches": 8},
    "chunks": {"schedule": "interleaved", "microbatches": 8},
    "p2p": {"microbatches": 8},
    "schedule": {"microbatches": 8},
    "warmup_flush": {"schedule": "interleaved:2", "microbatches": 8},
    "deallocate_outputs": {"schedule": "interleaved:2", "microbatches": 8},
    "memory_limit": {"schedule": "auto-zb", "microbatches": 16},
    "dp_bucket": {"dp_overlap": True},
    "overlap_cost": {"dp_overlap": True},
}
"""What an option needs to have an effect."""
