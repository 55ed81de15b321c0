"""What training logs say of their steps and jobs, in the forms that public code prints."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from logs import BRIDGE, MEGATRON_JOB, NEMO, NEMO_BAR, megatron_log, nanotron_log, titan_log

from stepsim.base.errors import TraceError, WorkloadError
from stepsim.files.load import read_model
from stepsim.files.traces.forms import has_step_lines
from stepsim.files.traces.logged_jobs import read_logged_job
from stepsim.files.traces.step_lines import read_step_log


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "form", "step_s", "tflops"),
    [
        (megatron_log((60, 2, 2.02, 1.98)), "Megatron-LM", 2.0, 421.8),
        (BRIDGE, "Megatron-Bridge", 2.03, 403.0),
        (NEMO, "NeMo", 2.505, None),
        (NEMO_BAR, "NeMo", 3.15, None),
        (nanotron_log(("9.1K", "1.31K", "1.3K", "1.32K")), "nanotron", 1.31, 201.0),
    ],
)
def test_steps_of_frameworks(
    tmp_path: Path, text: str, form: str, step_s: float, tflops: float | None
) -> None:
    path = written(tmp_path, text)
    assert has_step_lines(path) or "arguments" in text
    found = read_step_log(path)
    assert found.form == form
    assert found.median_ps() == pytest.approx(step_s * 1e12)
    assert found.steady_tflops == (None if tflops is None else pytest.approx(tflops, abs=0.1))


def test_megatron_prints_all_its_arguments(tmp_path: Path) -> None:
    """Defaults of layers that are not there, and switches that are off, ask for nothing."""
    job = read_logged_job(written(tmp_path, megatron_log((2, 2))), "Megatron-LM")
    assert job.model is not None
    public = read_model("llama-3-8b").architecture
    assert job.model.architecture.parameters() == public.parameters()
    asked = dict(job.model.asked)
    assert (asked["npus"], asked["tp"], asked["global_batch"]) == (64, 2, 128)
    assert (asked["recompute"], asked["zero"], asked["dp_overlap"]) == ("none", 1, True)
    assert not job.model.warnings


def test_megatron_keeps_some_values_under_other_names(tmp_path: Path) -> None:
    text = megatron_log(
        (2, 2),
        recompute_granularity="selective",
        recompute_modules="['core_attn']",
        pipeline_model_parallel_size=4,
        virtual_pipeline_model_parallel_size=2,
        fp8="hybrid",
        cp_comm_type="['a2a']",
        attention_backend="AttnBackend.unfused",
    )
    job = read_logged_job(written(tmp_path, text), "Megatron-LM")
    assert job.model is not None
    asked = dict(job.model.asked)
    assert (asked["recompute"], asked["schedule"]) == ("selective", "interleaved:2")
    assert (asked["precision"], asked["cp_comm"]) == ("fp8", "all_to_all")
    assert asked["attention"] == "unfused"


def test_bridge_prints_yaml(tmp_path: Path) -> None:
    """Sections stand in the order of the alphabet; the model's has the last word."""
    of_train = ("micro_batch_size", "global_batch_size")
    job_values = {**MEGATRON_JOB, "num_moe_experts": 8, "moe_ffn_hidden_size": 14336}
    words = {"True": "true", "False": "false", "None": "null"}
    texts = {name: str(value) for name, value in job_values.items() if name not in of_train}
    values = {name: words.get(text, text) for name, text in texts.items()}
    model = "".join(f"0:   {name}: {value}\n" for name, value in values.items())
    model += "0:   moe_layer_freq:\n" + "0:   - 0\n" * 16 + "0:   - 1\n" * 16
    text = "0: comm_overlap:\n0:   tp_comm_overlap: null\n0: dataset:\n0:   seq_length: 4\n"
    text += f"0: model:\n{model}0:   tp_comm_overlap: true\n0: train:\n"
    text += "".join(f"0:   {name}: {MEGATRON_JOB[name]}\n" for name in of_train)
    job = read_logged_job(written(tmp_path, text + BRIDGE), "Megatron-Bridge")
    assert job.model is not None
    asked = dict(job.model.asked)
    assert (asked["tp"], asked["sequence"], asked["tp_comm_overlap"]) == (2, 8192, True)
    assert asked["global_batch"] == 128
    assert job.model.architecture.is_sparse
    assert "output_bias=False" in str(job.model.architecture.layers[0])
    assert job.options["framework"] == "megatron-bridge"


def test_torchtitan_says_model_mesh_and_device(tmp_path: Path) -> None:
    job = read_logged_job(written(tmp_path, titan_log((900, 6000), mode="full")), "torchtitan")
    assert job.model is not None
    assert job.model.source == "llama-3.1-8b"
    wanted = {"npus": 8, "zero": 3, "global_batch": 8, "sequence": 8192, "recompute": "full"}
    wanted |= {"framework": "torch-fsdp-compiled", "device": "h100-80gb"}
    assert wanted.items() <= dict(job.options).items()


CONFIGURED: dict[str, dict[str, Any]] = {
    "model": {"name": "llama3", "flavor": "8B"},
    "training": {"local_batch_size": 2, "seq_len": 4096, "global_batch_size": -1},
    "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 2},
    "activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"},
}


@pytest.mark.parametrize("words", [repr, json.dumps, partial(json.dumps, indent=2)])
def test_a_printed_configuration_is_read_but_for_what_is_not_known(
    words: Callable[[object], str], tmp_path: Path
) -> None:
    """torchtitan has printed it as Python does, as JSON, and as JSON in lines."""
    lines = [f"[titan] - root - INFO - Running with args: {words(CONFIGURED)}"]
    lines += [each for each in titan_log((900, 6000)).splitlines() if "Trainer is" not in each]
    job = read_logged_job(written(tmp_path, "\n".join(lines)), "torchtitan")
    wanted = {"npus": 8, "sequence": 4096, "microbatch_size": 2, "recompute": "operators"}
    assert wanted.items() <= dict(job.options).items()
    assert job.model is not None
    assert any("selective_ac_option is '2'" in each for each in job.model.warnings)


def test_ranks_may_print_the_same_steps_and_validation_is_none(tmp_path: Path) -> None:
    one = titan_log((900, 6000)).splitlines()
    both = "\n".join(f"{line}\n{line.replace('rank0', 'rank1')}" for line in one)
    found = read_step_log(written(tmp_path, both))
    assert (found.unit, found.numbers, found.values) == ("tokens_per_s", (1, 2), (900, 6000))


def test_old_logs_of_megatron_print_less(tmp_path: Path) -> None:
    """The vocabulary stood beside the arguments, and attention was chosen by another switch."""
    text = megatron_log(
        (2, 2),
        padded_vocab_size=None,
        attention_backend=None,
        use_flash_attn=False,
        transformer_impl="local",
    )
    line = " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)\n"
    job = read_logged_job(written(tmp_path, line + text), "Megatron-LM")
    assert job.model is not None
    assert job.model.architecture.vocabulary == 50304
    assert dict(job.model.asked)["attention"] == "unfused"
    lines = "using world size: 16, data-parallel size: 4, context-parallel size: 1, "
    lines += "tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n"
    lines += " iteration 5/ 50 | elapsed time per iteration (ms): 20.5 | global batch size:   64 |"
    said = read_logged_job(written(tmp_path, lines), "Megatron-LM")
    assert said.model is None
    assert dict(said.options) == {"npus": 16, "tp": 2, "pp": 2, "cp": 1, "global_batch": 64}


def test_nemo_says_its_batch(tmp_path: Path) -> None:
    said = read_logged_job(written(tmp_path, NEMO), "NeMo").options
    assert dict(said) == {"global_batch": 8, "framework": "nemo-performance"}


def test_an_old_mesh_of_torchtitan(tmp_path: Path) -> None:
    text = titan_log((900, 6000)).replace(
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, "
        "ep=1, etp=1",
        "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
    )
    options = read_logged_job(written(tmp_path, text), "torchtitan").options
    assert (options["npus"], options["tp"]) == (8, 2)


def test_nanotron_prints_its_configuration(tmp_path: Path) -> None:
    job = read_logged_job(written(tmp_path, nanotron_log(("1.3K",))), "nanotron")
    assert job.model is not None
    assert job.model.architecture.depth == 16
    wanted = {"npus": 16, "tp": 2, "global_batch": 128, "microbatch_size": 2, "zero": 1}
    assert (wanted | {"sequence_parallel": True}).items() <= dict(job.options).items()


@pytest.mark.parametrize("form", ["Megatron-LM", "torchtitan", "nanotron", "DeepSpeed"])
def test_a_log_may_say_nothing(tmp_path: Path, form: str) -> None:
    assert read_logged_job(written(tmp_path, "step 1\n"), form).model is None


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"--hidden-size is 'wide': expected a whole number"):
        read_logged_job(written(tmp_path, megatron_log((2,), hidden_size="wide")), "Megatron-LM")
    with pytest.raises(TraceError, match="cannot read"):
        read_logged_job(tmp_path / "absent", "nanotron")
