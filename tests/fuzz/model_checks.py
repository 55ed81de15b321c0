"""Documents about models and machines, and profiles in containers: seeds, and their checks.

As in `checks` a function returns when the document is fine and raises StepsimError where it is not.
"""

import gzip
import io
import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import seeds
from fuzz.checks import finite, finite_json, printed

import stepsim
from stepsim.workload.model.model import Model

MOST_LAYERS = 64
MODELS = ("llama-3.2-1b", "gpt2", "deepseek-v2-lite", "qwen3-30b-a3b", "gemma-2-2b", "gpt-oss-20b")
JOB: dict[str, Any] = {"npus": 8, "sequence": 256, "global_batch": 16}
SCRIPT = """#!/bin/bash
TP=2
MODEL_ARGS=(
    --num-layers 4      # layers
    --hidden-size 1024 --num-attention-heads=16
    --num-experts 8 --moe-router-topk 2 --moe-layer-freq '([0]*1+[1]*3)'
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 2 --micro-batch-size 1 \\
    --global-batch-size 16 --bf16 --seq-length 512 --max-position-embeddings 512 \\
    --vocab-size 50257 --sequence-parallel --use-distributed-optimizer --recompute-activations
"""
ARGUMENTS = """MODEL_ARGS:
  num-layers: 4
  hidden-size: 1024
  num-attention-heads: 16
  group-query-attention: true
  num-query-groups: 4
  swiglu: true
  seq-length: 512
  max-position-embeddings: 512
  bf16: true
"""
MODEL_CALIBRATION = """sources = ["a.csv"]
notes = ["nanotron: one step"]
[[factor]]
device = "H100"
framework = "megatron-core"
precision = "bf16"
factor = 1.07
runs = 3
spread = 0.02
[[rate]]
device = "H100"
precision = "bf16"
rate = 741.5
peak = 989.4
start = "3.0 us"
shapes = 12
spread = 0.05
"""
GEMM = "m,n,k,tflops\n4096,4096,4096,600.5\n8192,8192,8192,700\n1024,2048,4096,300\n"
STEP_LOG = (
    " [2025-03-01 10:00:05] iteration        5/      50 | consumed samples:          640 | elapsed "
    "time per iteration (ms): 4200.5 | throughput per GPU (TFLOP/s/GPU): 401.3 | loss: 1.1E+01 |\n"
    "(min, max) time across ranks (ms):\n"
    "    forward-backward ...............................: (4000.10, 4100.50)\n"
    "    optimizer ......................................: (20.00, 25.50)\n"
)
TITAN = (
    "step:  2  loss:  8.1234  memory: 47.51GiB(50.01%)  tps: 5,000  tflops: 301.20  mfu: 30.4%\n"
)
DEEPSPEED = "steps: 1 loss: 8.1 iter time (s): 2.5 samples/sec: 25.9\n"


@cache
def configurations() -> tuple[bytes, ...]:
    """Configurations of public models of several families, cut to four layers."""
    from stepsim.files.load import public_model

    found = (dict(public_model(name)) for name in MODELS)
    return tuple(
        json.dumps(each | {"name": "a", "num_hidden_layers": 4}).encode() for each in found
    )


@cache
def ndtimelines() -> tuple[bytes, ...]:
    """A small job in NDTimeline's parquet."""
    from profiles import made_rows, write_rows

    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(
            made_rows(stages=2, replicas=1, microbatches=2), Path(folder) / "a.parquet"
        )
        return (path.read_bytes(),)


@cache
def nsys_exports() -> tuple[bytes, ...]:
    """Two kernels on each of two devices."""
    kernels = [
        ((1 << 24), rank, 7 + i, 10 + i, 1000 * i, 1000 * i + 900, i)
        for rank in (0, 1)
        for i in (0, 1)
    ]
    common = "globalPid, deviceId, streamId, correlationId, start, end"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA page_size = 512")
            database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            names = [(0, "gemm"), (1, "ncclDevKernel_AllReduce")]
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({common}, shortName)")
            rows = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)"
            database.executemany(rows, kernels)
            database.commit()
        return (path.read_bytes(),)


@cache
def archives() -> tuple[bytes, ...]:
    """The traces of two ranks in an archive, as it is and packed."""
    whole = tar(seeds.chakra_folder())
    return whole, gzip.compress(whole, 1, mtime=0)


def tar(files: Mapping[str, bytes]) -> bytes:
    """An archive of files by their names."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


@cache
def devices() -> tuple[bytes, ...]:
    """Shipped devices."""
    return tuple(path.read_bytes() for path in sorted((seeds.ROOT / "devices").glob("*.toml"))[:4])


@cache
def frameworks() -> tuple[bytes, ...]:
    """Shipped frameworks."""
    return tuple(path.read_bytes() for path in sorted((seeds.ROOT / "frameworks").glob("*.toml")))


def check_model(path: Path) -> None:
    """A model is described, and one of few layers simulated."""
    from stepsim.files.load import is_model, read_model

    is_model(path)
    model = read_model(path)
    finite([model.architecture.parameters()])
    if model.architecture.depth <= MOST_LAYERS:
        simulate(path, tp=1, pp=1, cp=1, ep=1, schedule="1f1b", microbatch_size=1)


def check_launch(path: Path) -> None:
    """A plan of a framework is read for a small model, which is simulated with what it asks."""
    from stepsim.files.load import read_model
    from stepsim.files.models.launch import with_launch

    model = with_launch(read_model("gpt2"), path)
    degrees = [int(str(model.asked.get(name, 1))) for name in ("tp", "cp", "pp", "ep")]
    if max(degrees) <= 2:
        simulate(model, npus=8, microbatch_size=1)


def simulate(model: Model | Path | str, **asked: Any) -> None:
    """A small step of a model."""
    result = stepsim.simulate(model, "hgx-h100", **{**JOB, **asked})
    finite_json(result.document().to_json())


TITAN_JOB = """[training]
local_batch_size = 2
global_batch_size = 4
seq_len = 64
[parallelism]
data_parallel_shard_degree = 4
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_layers_per_stage = 3
pipeline_parallel_first_stage_less_layers = 0
pipeline_parallel_last_stage_less_layers = 0
[activation_checkpoint]
mode = "full"
"""
OVERRIDES = (
    "model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=2 "
    "'model.pipeline_model_parallel_layout=\"Et*6|t*6L\"' train.micro_batch_size=1 "
    "train.global_batch_size=4 model.seq_length=64 mixed_precision=bf16_mixed"
)


def check_device(path: Path) -> None:
    simulate("gpt2", device=str(path))


def check_framework(path: Path) -> None:
    simulate("gpt2", framework=str(path))


def check_plan(path: Path) -> None:
    """A plan of a small job is held against a budget; paths in it are not followed."""
    from stepsim.explore.plan.budget import check_plan_file
    from stepsim.files.models.launch import read_plan

    plan = read_plan(path)
    if plan.model == "gpt2" and plan.topology == "hgx-h100":
        asked = [plan.options.get(name, 1) for name in ("npus", "microbatches", "global_batch")]
        if all(isinstance(each, int) and each <= 256 for each in asked):
            finite_json(check_plan_file(path, step="1s").to_json())


def check_model_calibration(path: Path) -> None:
    from stepsim.base.structs import toml_text
    from stepsim.files.calibrations import read_model_calibration
    from stepsim.views.validation import model_calibration_shown

    known = read_model_calibration(path)
    toml_text(known)
    printed(path, model_calibration_shown(known, ()))
    simulate("gpt2", device="h100", calibration=str(path))


def check_published(path: Path) -> None:
    from stepsim.files.model_steps import is_published_steps, read_published_steps
    from stepsim.runs.published import validate_published
    from stepsim.views.validation import published_shown

    is_published_steps(path)
    steps, _ = read_published_steps(path)
    if all(each.architecture.depth <= MOST_LAYERS for each in steps):
        printed(path, published_shown(validate_published(steps)))


def check_gemm(path: Path) -> None:
    from stepsim.files.accelerators import read_device
    from stepsim.files.calibrations import fit_gemm_rates
    from stepsim.workload.model.choices import Precision

    found = fit_gemm_rates(path, read_device("h100"), Precision.BF16)
    finite([found.rate, found.start_ps, found.spread])


def check_step_log(path: Path) -> None:
    from stepsim.files.traces.step_lines import read_step_log
    from stepsim.views.measured import step_log_shown

    log = read_step_log(path)
    printed(path, step_log_shown(log))
    log.median_ps(1024)
