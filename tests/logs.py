"""Training logs in the form that the public code of frameworks prints; the jobs are made up."""

from collections.abc import Iterable

MEGATRON_JOB: dict[str, object] = {
    "add_bias_linear": False,
    "attention_backend": "AttnBackend.auto",
    "bf16": True,
    "context_parallel_size": 1,
    "cp_comm_type": None,
    "cuda_graph_impl": "none",
    "data_parallel_sharding_strategy": "no_shard",
    "decoder_seq_length": None,
    "encoder_num_layers": 32,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": 2,
    "ffn_hidden_size": 14336,
    "fp8": None,
    "global_batch_size": 128,
    "group_query_attention": True,
    "hidden_dropout": 0.0,
    "hidden_size": 4096,
    "kv_channels": 128,
    "linear_attention_freq": None,
    "linear_conv_kernel_dim": 4,
    "mamba_state_dim": 128,
    "max_position_embeddings": 8192,
    "micro_batch_size": 1,
    "moe_layer_freq": 1,
    "moe_router_topk": 2,
    "moe_token_dispatcher_type": "allgather",
    "normalization": "RMSNorm",
    "num_attention_heads": 32,
    "num_experts": None,
    "num_layers": 32,
    "num_query_groups": 8,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "padded_vocab_size": 128256,
    "params_dtype": "torch.bfloat16",
    "pipeline_model_parallel_size": 1,
    "position_embedding_type": "rope",
    "recompute_granularity": None,
    "retro_add_retriever": False,
    "seq_length": 8192,
    "sequence_parallel": True,
    "spec": None,
    "swiglu": True,
    "tensor_model_parallel_size": 2,
    "untie_embeddings_and_output_weights": True,
    "use_distributed_optimizer": True,
    "world_size": 64,
}
"""Arguments of a job of 64 GPUs as Megatron-LM keeps them, those with defaults among them."""

_TITAN = "[rank0]:[titan] 2025-11-25 19:44:58,595 - root - INFO - "
_NANO = "01/09 19:01:15 [INFO|DP=0]: "


def megatron_log(seconds: Iterable[float], **changed: object) -> str:
    """A log of Megatron-LM: its arguments, then a line per step of so many seconds."""
    job = MEGATRON_JOB | changed
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in sorted(job.items())]
    lines.append("-------------------- end of arguments ---------------------")
    lines += [
        f" [2025-03-01 10:{n:02}:00.000000] iteration {n:8d}/      50 | consumed samples: "
        f"{n * 128:12d} | elapsed time per iteration (ms): {each * 1e3:.1f} | throughput per GPU "
        f"(TFLOP/s/GPU): {843.5 / each:.1f} | learning rate: 1.0E-05 | lm loss: 1.1E+01 |"
        for n, each in enumerate(seconds, 1)
    ]
    return "\n".join(lines) + "\n"


def titan_log(rates: Iterable[int], *, mode: str = "selective") -> str:
    """A log of torchtitan on 8 H100: Llama 3 8B, then lines of tokens a second and GPU."""
    lines = [
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, "
        "ep=1, etp=1",
        "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory",
        "Building llama3 8B with {",
        f"Applied {mode} activation checkpointing to the model",
        "Compiling each TransformerBlock with torch.compile",
        "Applied FSDP to the model",
        "Trainer is initialized with local batch size 1, global batch size 8, gradient "
        "accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)",
    ]
    lines += [
        f"\x1b[31mstep: {n:2}  \x1b[32mloss:  8.1234  \x1b[38;2;180;60;0mgrad_norm:  1.1234  "
        f"\x1b[38;2;54;234;195mmemory: 47.51GiB(50.01%)  \x1b[34mtps: {each:,}  \x1b[36mtflops: "
        f"{each * 0.0517:,.2f}  \x1b[35mmfu: 30.46%\x1b[39m"
        for n, each in enumerate(rates, 1)
    ]
    lines.append("\x1b[33mvalidate step:  9  \x1b[32mloss:  8.1  \x1b[34mtps: 12,345\x1b[39m")
    return "".join(f"{_TITAN}{line}\n" for line in lines)


def nanotron_log(times: Iterable[str]) -> str:
    """A log of nanotron on 16 GPUs: its configuration, then lines of milliseconds for people."""
    lines = [
        "Config:",
        "Config(general=GeneralArgs(project='made', run='one'),",
        "       parallelism=ParallelismArgs(dp=8,",
        "                                   pp=1,",
        "                                   tp=2,",
        "                   tp_mode=<TensorParallelLinearMode.REDUCE_SCATTER: 2>,",
        "                                   recompute_layer=False,",
        "                                   expert_parallel_size=1,",
        "                                   context_parallel_size=1),",
        "       model=ModelArgs(model_config=LlamaConfig(bos_token_id=1,",
        "                hidden_size=2048, intermediate_size=8192, max_position_embeddings=4096,",
        "                num_attention_heads=32, num_hidden_layers=16, num_key_value_heads=8,",
        "                tie_word_embeddings=True, vocab_size=49152)),",
        "       tokens=TokensArgs(sequence_length=4096, train_steps=100, micro_batch_size=2,",
        "                batch_accumulation_per_replica=8),",
        "       optimizer=OptimizerArgs(zero_stage=1))",
    ]
    lines += [
        f"iteration: {n} / 100 | consumed_tokens: {n * 524}K | elapsed_time_per_iteration_ms: "
        f"{each} | tokens_per_sec: 400K | tokens_per_sec_per_gpu: 25K | global_batch_size: 128 | "
        "lm_loss: 8.1 | lr: 0.0003 | model_tflops_per_gpu: 201 | hardware_tflops_per_gpu: 201"
        for n, each in enumerate(times, 1)
    ]
    return "".join(f"\x1b[2;3m{_NANO}\x1b[0m{line}\n" for line in lines)


BRIDGE = """\
Step Time : 61.20s GPU utilization: 13.1MODEL_TFLOP/s/GPU
Step Time : 2.05s GPU utilization: 401.5MODEL_TFLOP/s/GPU
Step Time : 2.01s GPU utilization: 404.5MODEL_TFLOP/s/GPU
"""
"""Lines of Megatron-Bridge, without Megatron-LM's between them."""

NEMO = "".join(
    f"Training epoch 0, iteration {n}/9 | lr: 1e-06 | global_batch_size: 8 | global_step: {n} | "
    f"reduced_train_loss: 1.3 | train_step_timing in s: {each} | consumed_samples: {8 * n}\n"
    for n, each in enumerate((7.126, 2.505, 2.515, 2.495))
)
"""Lines of NeMo 2."""

NEMO_BAR = "".join(
    f"Epoch 0: :  {n}%| | {n}/100 [00:4{n}<00:00, reduced_train_loss=0.01, global_step={n}.00, "
    f"consumed_samples=256.0, train_step_timing in s={each}]\r"
    for n, each in ((1, 9.0), (2, 3.0), (2, 3.1), (3, 3.2))
)
"""The bar of NeMo 1, one step of it drawn twice."""
