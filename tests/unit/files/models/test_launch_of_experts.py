"""What a framework is launched with says all of a step: it is read back to the same picosecond.

Models with experts, shared out or not, under options that speak of their exchanges; dense ones.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pairs import pairwise

from stepsim.base.errors import StepsimError
from stepsim.files.asked import read_inputs
from stepsim.files.models.launch import LaunchForm, launch_of, with_launch
from stepsim.network.prices import Known
from stepsim.step.job import job_of
from stepsim.step.prepared import prepare
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.model import Model

MEGATRON = ("megatron-core", "megatron-bridge")
FRAMEWORKS = (*MEGATRON, "torch-fsdp-compiled", "torch-fsdp-eager")
DISPATCHES = (None, *ExpertDispatch)
BESIDE: tuple[dict[str, Any], ...] = (
    {},
    {"delay_wgrad": True},
    {"shared_overlap": True},
    {"shared_overlap": True, "delay_wgrad": True},
    {"expert_overlap": True},
    {"expert_overlap": True, "delay_wgrad": True},
)
EXPERTS: dict[str, tuple[Any, ...]] = {
    "model": ("mixtral-8x7b", "deepseek-v2-lite"),
    "ep": (1, 2),
    "tp": (1, 2),
    "dispatch": DISPATCHES,
    "beside": BESIDE,
}
"""Of these the slow test takes every combination."""

OTHERS: dict[str, tuple[Any, ...]] = {
    "topology": ("hgx-h100", "hgx-h800", "hgx-b200"),
    "cp": (1, 2),
    "microbatch_size": (None, 1, 2),
    "expert_tp": (None, 1),
    "stages": ({}, {"pp": 2}, {"pp": 2, "chunks": 2}, {"pp": 2, "layout": "20,12"}),
    "precision": (None, "fp16", "fp8", "mxfp8", "nvfp4"),
    "attention": (None, "unfused"),
    "dp_overlap": (None, False, True),
    "tensors": (
        {},
        {"tp_comm_overlap": False},
        {"tp_comm_overlap": True},
        {"sequence_parallel": False},
        {"tp_comm_overlap": True, "sequence_parallel": False},
    ),
}
OF_MEGATRON: dict[str, tuple[Any, ...]] = {
    "kept": ({}, {"recompute": "selective"}, {"recompute": "full"}, {"cuda_graph": True}),
    "zero": (None, 0, 1, 2, 3),
    "cp_comm": (None, "all_gather", "all_to_all"),
}
OF_TITAN: dict[str, tuple[Any, ...]] = {
    "kept": ({}, {"recompute": "operators"}, {"recompute": "full"}),
    "zero": (3,),
    "cp_comm": (None, "all_gather"),
    "dispatch": (None, ExpertDispatch.DEEPEP, ExpertDispatch.DEEPEP_FP8),
    "beside": BESIDE[:2],
    "stages": ({}, {"pp": 2}, {"pp": 2, "chunks": 2}),
    "precision": (None, "fp8", "mxfp8"),
    "attention": (None,),
    "tensors": ({}, {"tp_comm_overlap": False}, {"tp_comm_overlap": True}),
}
"""What torchtitan has, and a value of two that it has not where experts are shared out."""
DENSE: dict[str, tuple[Any, ...]] = {"model": ("llama-3.1-8b", "gpt3-5b"), "tp": (1, 2)}
OF_EXPERTS = ("ep", "expert_tp", "dispatch", "beside")
KNOWN = Known()
JOB = {"npus": 16, "global_batch": 32, "sequence": 4096}


def is_read_back(framework: str, row: Mapping[str, Any], folder: Path) -> bool:
    """Whether a job's plan has a form, which then must be read back to the same step.

    A job that stepsim or the framework refuses has none.
    """
    asked = {name: value for name, value in row.items() if value is not None}
    name, topology = asked.pop("model"), asked.pop("topology", "hgx-h100")
    for choice in ("beside", "stages", "tensors", "kept"):
        asked |= asked.pop(choice, {})
    try:
        job = read_inputs(name, topology, {**JOB, "framework": framework, **asked})
        assert isinstance(job.workload, Model)
        built = job_of(job)
        written = prepare(built, known=KNOWN, quick=True).step_time_ps()
    except StepsimError:
        return False
    launch = launch_of(built.plan, job.workload.architecture, framework)
    if launch.refused:
        return False
    path = folder / ("plan.toml" if launch.form is LaunchForm.TORCHTITAN else "plan.sh")
    path.write_text("\n".join(launch.lines))
    typed = {"npus": built.plan.npus, "framework": framework}
    if launch.form is LaunchForm.TORCHTITAN:  # FSDP has no switch of it
        typed["dp_overlap"] = built.plan.dp_overlap
    again = read_inputs(with_launch(job.workload, path), topology, typed)
    read = prepare(again, known=KNOWN, quick=True).step_time_ps()
    assert read == written, (row, launch.lines)
    return True


def rows_of(framework: str) -> Iterator[dict[str, Any]]:
    """Options of a job, every two values of two of them together in a row."""
    factors = EXPERTS | OTHERS | (OF_MEGATRON if framework in MEGATRON else OF_TITAN)
    if framework == "torch-fsdp-eager":  # which overlaps no exchange of tp
        factors["tensors"] = factors["tensors"][:2]
    yield from pairwise(factors)
    dense = {name: factors[name] for name in factors if name not in OF_EXPERTS} | DENSE
    yield from pairwise(dense)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_two_options_are_read_back(framework: str, tmp_path: Path) -> None:
    rows = list(rows_of(framework))
    read = [row for row in rows if is_read_back(framework, row, tmp_path)]
    assert len(read) > len(rows) / 3
    for factor in ("model", "ep", "stages", "precision", "kept", "zero"):
        wanted, found = ([row.get(factor) for row in some] for some in (rows, read))
        assert [value for value in wanted if value not in found] == [], factor


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_option_of_experts_is_read_back(framework: str, tmp_path: Path) -> None:
    zero = {} if framework in MEGATRON else {"zero": 3}
    rows = [dict(zip(EXPERTS, row, strict=True)) | zero for row in product(*EXPERTS.values())]
    read = [row for row in rows if is_read_back(framework, row, tmp_path)]
    alone = [row for row in read if row["ep"] == 1]
    assert len(alone) == len(rows) / 2  # what means nothing there is no reason to refuse a plan


def step_ps(name: str, **asked: Any) -> int:
    job = read_inputs(name, "hgx-h100", {**JOB, "tp": 2, "ep": 1, **asked})
    return prepare(job).step_time_ps()


@pytest.mark.parametrize("name", EXPERTS["model"])
def test_experts_that_are_not_shared_out_exchange_nothing(name: str) -> None:
    """Tokens stay where they are: how they would be sent, and beside what, changes no step."""
    plain = step_ps(name)
    for asked in (*BESIDE, *({"dispatch": dispatch} for dispatch in ExpertDispatch)):
        assert step_ps(name, **asked) == plain, asked
