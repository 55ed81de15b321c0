"""What a model's step has where nobody says it: framework defaults, batch, a plan that fits."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from sweeps import Alone, grouped

from stepsim import load_topology, simulate
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError
from stepsim.base.executors import pack
from stepsim.explain.report import Report
from stepsim.explore.sweep import Grid, Study, parse_axis
from stepsim.explore.sweep.run import evaluate_span
from stepsim.face.steps import sensitivity
from stepsim.files.accelerators import framework_names, read_framework
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.files.load import public_names
from stepsim.step.compare import compare_schedules
from stepsim.step.job import held_degrees, job_of
from stepsim.step.model_plan import DEFAULT_TOKENS, default_batch
from stepsim.step.plans import make_space
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.framework import JOB_DEFAULTS, Framework
from stepsim.workload.model.memory import TIGHT_SHARE
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan

FSDP = ("composer-fsdp", "torch-fsdp-compiled", "torch-fsdp-compiled-2024", "torch-fsdp-eager")
MACHINES = ("hgx-a100", "hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72")


def inputs(model: str, topology: str = "hgx-h100", **options: Any) -> StepInputs:
    return read_inputs(model, topology, options)


def built_of(job: StepInputs) -> tuple[Plan, StepModel]:
    built = job_of(job)
    assert built.setup is not None
    return built.plan, built.setup


def planned(model: str, **options: Any) -> Plan:
    """The plan of a model's step under the options."""
    return built_of(inputs(model, **options))[0]


def swept(job: StepInputs, axis: str, together: int) -> list[int]:
    """Step times of a job along an axis, so many of them evaluated together."""
    grid = Grid(axes=(parse_axis(axis),))
    study = Study(**asdict(job), grid=grid)
    packed = pack(grouped(Alone, study))
    starts = range(0, grid.size, together)
    spans = [range(start, start + together) for start in starts]
    return [time for span in spans for time in evaluate_span(packed, span)[1]["step_time_ps"]]


def step(model: str, **options: Any) -> Report:
    return simulate(model, "hgx-h100", **options).report


def said(report: Report, begin: str) -> str:
    (text,) = (text for text in report.warnings if text.startswith(begin))
    return text


def pinned(note: str) -> dict[str, str]:
    """The options that a note of what was guessed says to give."""
    words = re.search("guessed (.*?), (?:the|which) ", note)
    assert words, note
    flags = shlex.split(words[1])
    named = zip(flags[::2], flags[1::2], strict=True)
    return {flag.lstrip("-").replace("-", "_"): value for flag, value in named}


# defaults of frameworks


def options_on(device: str, framework: Framework, *, sparse: bool = False) -> dict[str, Any]:
    return framework.of_job(device, Precision.BF16, sparse=sparse).job_options


@pytest.mark.parametrize("name", framework_names())
def test_every_framework_says_how_its_jobs_run_and_who_does(name: str) -> None:
    framework = read_framework(name)
    known = options_on("H100", framework, sparse=True) | options_on("H100", framework)
    assert known.keys() <= set(JOB_DEFAULTS)
    assert "zero" in known
    assert all(len(each.source) > 10 for each in framework.defaults)


@pytest.mark.parametrize(
    ("framework", "zero", "overlap"),
    [
        *((name, 3, False) for name in FSDP),
        ("megatron-core", 1, True),
        ("megatron-2021", 0, False),
        ("nanotron", 1, False),
    ],
)
def test_replicas_are_kept_together_as_the_framework_does(
    framework: str, zero: int, overlap: bool
) -> None:
    plan = planned("llama-3-8b", npus=8, tp=1 if zero == 3 else 2, framework=framework)
    assert (plan.zero, plan.dp_overlap, plan.reshard) == (zero, overlap, True)


def test_what_is_asked_for_comes_before_what_jobs_have() -> None:
    asked = {"zero": 0, "dp_overlap": False, "tp_comm_overlap": True}
    plan = planned("llama-3-8b", npus=8, tp=2, **asked)
    assert {name: getattr(plan, name) for name in asked} == asked


def test_defaults_are_said_in_one_sentence_but_for_those_asked_for() -> None:
    begin = "defaults of megatron-core: "
    options: dict[str, Any] = {"npus": 8, "tp": 2, "microbatches": 1, "sequence": 512}
    assert said(step("llama-3-8b", **options), begin) == (
        f"{begin}zero 1, dp_overlap on, tp_comm_overlap off (as its jobs run)"
    )
    asked = step("llama-3-8b", **options, zero=1, dp_overlap=False)
    assert said(asked, begin) == f"{begin}tp_comm_overlap off (as its jobs run)"
    assert not planned("llama-3-8b", npus=8, tp=8).dp_overlap, "there is nothing to overlap"
    alone = step("llama-3-8b", npus=1, tp=1, microbatches=1, sequence=512)
    assert not any(text.startswith(begin) for text in alone.warnings)


def test_overlap_by_default_is_the_overlap_that_is_asked_for() -> None:
    options = {"npus": 16, "tp": 2, "microbatches": 2, "sequence": 2048}
    default, on, off = (
        step("llama-3-8b", **options, **more)
        for more in ({}, {"dp_overlap": True}, {"dp_overlap": False})
    )
    assert default.step_time_ps == on.step_time_ps < off.step_time_ps
    exposed = [r.breakdown_ps[Part.EXPOSED_DP.key] for r in (default, off)]
    assert exposed[0] < 0.5 * exposed[1]


def test_a_file_says_defaults_by_device_and_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\nmemory_factor = 1.0\nhost_layer = "1 ms"\nhost_expert_layer = "1 ms"\n'
        '[attention]\ndefault = "flash2"\n'
        '[[defaults]]\nzero = 2\ncuda_graph = false\nsource = "here"\n'
        '[[defaults]]\ndevices = ["H100"]\ncuda_graph = true\nsource = "there"\n'
    )
    framework = read_framework(path)
    assert options_on("H100", framework) == {"zero": 2, "cuda_graph": True}
    assert options_on("B200", framework) == {"zero": 2, "cuda_graph": False}
    path.write_text(path.read_text().replace("zero = 2", "zero = 4"))
    with pytest.raises(PlanError, match="zero"):
        read_framework(path)


def test_workload_files_run_as_ever(moe: Path) -> None:
    """Off is what a file's step has: to say so changes nothing, in time or in what is recorded."""
    off: dict[str, Any] = {"dp_overlap": False, "cuda_graph": False, "microbatch_size": 1}
    bare, same = (simulate(moe, "hgx-h100", **more).report for more in ({}, off))
    assert (same.step_time_ps, same.settings) == (bare.step_time_ps, bare.settings)
    with pytest.raises(PlanError, match="cuda_graph: it is for models only"):
        simulate(moe, "hgx-h100", cuda_graph=True)


# the batch


@pytest.mark.parametrize("sequence", [512, 4096, 8192, 131072])
@pytest.mark.parametrize(("samples", "pp"), [(1, 1), (8, 1), (8, 4), (24, 6), (512, 8)])
def test_a_batch_is_the_nearest_to_four_million_tokens(
    samples: int, pp: int, sequence: int
) -> None:
    batch, unit = default_batch(samples, pp, sequence), samples * pp
    assert batch % unit == 0 < batch
    miss = abs(batch * sequence - DEFAULT_TOKENS)
    assert all(
        miss <= abs(other * sequence - DEFAULT_TOKENS)
        for other in (batch - unit, batch + unit)
        if other > 0
    )


def test_the_batch_that_is_assumed_is_said() -> None:
    asked = {"npus": 32, "tp": 2, "pp": 2, "microbatch_size": 1, "chunks": 1, "sequence": 4096}
    report = step("llama-3-8b", **asked)
    assert report.microbatches * report.plan["dp"] == 1024
    assert "1024 samples (4.19 million tokens, 128 microbatches" in said(report, "no global_batch")


# a plan that fits


def test_a_plan_that_is_chosen_is_said_with_flags_that_give_it() -> None:
    few = {"npus": 64, "global_batch": 64}
    free = step("llama-3-70b", **few)
    held = step("llama-3-70b", **few, **pinned(said(free, "no degrees given: ")))
    assert held.step_time_ps == free.step_time_ps
    assert not any(text.startswith("no degrees") for text in held.warnings)


def test_no_plan_is_taken_for_a_larger_batch_than_others_need() -> None:
    """16,384 GPUs need more than 4 million tokens; microbatches of two would need twice as many."""
    plan = planned("llama-3.1-405b", npus=16384)
    assert (plan.microbatch_size, plan.step_tokens) == (1, 2048 * 4096)


def test_degrees_that_are_given_in_part_leave_the_others_at_one() -> None:
    plan = planned("llama-3-70b", npus=64, tp=8)
    assert (plan.tp, plan.cp, plan.pp, plan.ep, plan.dp) == (8, 1, 1, 1, 8)


HALF: dict[str, Any] = {"npus": 512, "global_batch": 512, "sequence": 8192, "tp": 8, "pp": 4}


def test_half_a_plan_is_completed_and_said_with_flags_that_pin_it() -> None:
    """Given tp and pp, virtual stages hide most of the bubble that 1F1B has."""
    half = step("llama-3-70b", **HALF)
    asked = pinned(said(half, "no mbs and vpp given: guessed --vpp "))
    assert int(asked["vpp"]) > 1
    assert step("llama-3-70b", **HALF, **asked).step_time_ps == half.step_time_ps
    plain = step("llama-3-70b", **HALF, chunks=1, microbatch_size=1)
    assert half.step_time_ps < 0.95 * plain.step_time_ps
    assert not any("given: guessed" in text for text in plain.warnings)


def test_no_degree_is_sought_beyond_the_gpus(tmp_path: Path) -> None:
    words = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-experts 2147483648"
    (tmp_path / "a.txt").write_text(f"{words} --max-position-embeddings 64 --bf16")
    assert planned(str(tmp_path / "a.txt"), npus=8, sequence=64, global_batch=8).ep <= 8


def test_experts_with_a_load_are_shared_out() -> None:
    job = {"npus": 64, "sequence": 2048, "global_batch": 64}
    for load, shared in (("skew:1.2", True), ("skew:1", False)):
        asked = inputs("olmoe-7b", "hgx-b200", expert_load=load, **job)
        degrees, _ = held_degrees(asked)
        assert (degrees["ep"] > 1) == shared


def test_prediction_layers_follow_layers_shared_out_by_cost() -> None:
    plan = planned("deepseek-v3", npus=512, framework="nanotron", pp=4, tp=8)
    assert [part.prediction_layers for part in plan.layout.slices][-1] == 1


def test_who_names_1f1b_has_no_virtual_stages() -> None:
    named = step("llama-3-70b", **HALF, schedule="1f1b", microbatch_size=1)
    plain = step("llama-3-70b", **HALF, chunks=1, microbatch_size=1)
    assert named.step_time_ps == plain.step_time_ps


SIZES = {"npus": "gpus", "global_batch": "global_batch", "sequence": "seq"}


def test_published_runs_of_which_half_the_plan_is_known(shared: Path) -> None:
    """Six of seven within 15 % of what was published, five inside the range of the step."""
    near = inside = 0
    with (shared / "reference/steps/half_plans.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        words = shlex.split(row["given"].replace("-t ", "--topology "))
        given = dict(zip((name.lstrip("-") for name in words[::2]), words[1::2], strict=True))
        asked: dict[str, Any] = {**given, **{name: row[key] for name, key in SIZES.items()}}
        model = row["model"]
        source = shared / "reference" / model if model.endswith(".json") else model
        report = simulate(source, asked.pop("topology"), **asked).report
        rates, seconds = report.throughput, float(row["published"])
        assert rates is not None
        if row["unit"].startswith("model TFLOP/s"):
            seconds = report.step_time_s * rates.model_tflops / seconds
        elif row["unit"].startswith("tokens/s"):
            seconds = rates.global_batch * rates.sequence / report.npus / seconds
        near += abs(report.step_time_s / seconds - 1) <= 0.15
        inside += (rates.low_s or 0.0) <= seconds <= (rates.high_s or 0.0)
    assert near >= len(rows) - 1
    assert inside >= len(rows) - 2


def test_layers_that_recompute_take_time_and_leave_memory_one_by_one() -> None:
    """From none to all five of a virtual stage; a plan takes as few as fit."""
    options = {**HALF, "chunks": 4, "microbatch_size": 1}
    recomputed: list[dict[str, Any]] = [{"recompute": "none"}]
    recomputed += [{"recompute": "full", "recompute_layers": n} for n in range(1, 6)]
    recomputed.append({"recompute": "full"})
    reports = [step("llama-3-70b", **options, **each) for each in recomputed]
    times = [report.step_time_ps for report in reports]
    held = [each.throughput.memory_bytes or 0 for each in reports if each.throughput]
    assert times == sorted(times)
    assert held == sorted(held, reverse=True)
    assert len(set(times)) == len(set(held)) == 6


def test_full_recomputation_is_of_as_few_layers_as_fit() -> None:
    """405B on 8,192 GPUs does not fit well without, and needs one of two layers of a stage."""
    asked = {"npus": 8192, "global_batch": 2048, "sequence": 8192}
    plan = planned("llama-3.1-405b", **asked, tp=8, pp=16)
    assert (plan.recompute, plan.recompute_layers) == ("full", 1)
    assert plan.chunks * plan.pp < 126
    known = {**asked, "tp": 8, "pp": 16, "recompute": "full"}
    assert planned("llama-3.1-405b", **known).recompute_layers is None


def test_a_sweep_recomputes_alike_on_every_size() -> None:
    """Two GPUs hold no 8B model without; the step of eight is then that of the same choice."""
    options: dict[str, Any] = {"sequence": 4096, "tp": 1, "zero": 3}
    steps = swept(inputs("llama-3-8b", **options), "npus=2,8", together=1)
    few = planned("llama-3-8b", npus=2, **options)
    assert few.recompute == "full"
    assert planned("llama-3-8b", npus=8, **options).recompute == "none"
    options |= {"recompute": "full", "recompute_layers": few.recompute_layers}
    assert steps[1] == step("llama-3-8b", npus=8, **options).step_time_ps


def test_what_is_asked_beside_degrees_is_held() -> None:
    options = {"npus": 64, "microbatch_size": 2, "recompute": "full", "zero": 0}
    plan = planned("llama-3-70b", **options)
    assert (plan.npus, plan.microbatch_size, plan.recompute, plan.zero) == (64, 2, "full", 0)
    assert planned("llama-3-8b", npus=16, global_batch=24).global_batch == 24


def test_the_plan_is_the_fastest_of_all_even_ones_that_fit() -> None:
    """Against every power of two by itself, each simulated: within what the closed form misses."""
    options = {"npus": 8, "sequence": 2048, "global_batch": 16}
    chosen = step("llama-3-8b", **options)
    found = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            for size in (1, 2, 4):
                if tp * pp > 8 or 16 % (8 // tp // pp * size):
                    continue
                each = step("llama-3-8b", **options, tp=tp, pp=pp, microbatch_size=size)
                rates = each.throughput
                assert rates is not None
                assert rates.memory_bytes
                assert rates.capacity_bytes
                if rates.memory_bytes < TIGHT_SHARE * rates.capacity_bytes:
                    found.append(each.step_time_ps)
    assert chosen.step_time_ps <= 1.03 * min(found)


def test_where_nothing_fits_the_smallest_plan_is_taken_and_said() -> None:
    report = step("llama-3-8b", npus=1, sequence=2048, microbatches=1)
    assert "which takes least memory: no plan fits" in said(report, "no degrees given")
    assert "it does not fit" in report.findings[0].text


def test_steps_that_are_compared_have_one_plan() -> None:
    options: dict[str, Any] = {"npus": 64, "sequence": 4096, "global_batch": 32}
    job = inputs("llama-3-70b", **options)
    names = [("1f1b", "1f1b"), ("zb-h1", "zb-h1")]
    compared = compare_schedules(job, names)
    plans = {
        (r.report.plan["tp"], r.report.plan["pp"], r.report.plan["dp"]) for _, r in compared.valid
    }
    assert len(plans) == 1
    found = sensitivity("llama-3-70b", "hgx-h100", **options)
    assert found.step_time_ps == step("llama-3-70b", **options).step_time_ps
    assert any(text.startswith("no degrees given") for text in found.warnings)


def test_a_sweep_keeps_the_plan_of_its_network_for_every_value_of_a_link() -> None:
    options: dict[str, Any] = {"npus": 64, "sequence": 2048, "global_batch": 128}
    job = inputs("llama-3-8b", **options)
    found = swept(job, "fabric.bandwidth=10,400 Gbps", together=2)
    degrees, _ = held_degrees(job)
    options |= {name: str(value) for name, value in degrees.items()}
    for time_ps, bandwidth in zip(found, ("10 Gbps", "400 Gbps"), strict=True):
        network = load_topology("hgx-h100", numbers={"fabric.bandwidth": bandwidth})
        assert time_ps == simulate("llama-3-8b", network, **options).report.step_time_ps


# steps that do not fit


def test_what_does_not_fit_is_said_first_with_flags_that_fit() -> None:
    asked = {"npus": 64, "tp": 2, "global_batch": 64}
    report = step("llama-3-70b", **asked)
    first = report.findings[0]
    assert first.is_weighty
    assert "it does not fit, times and rates are those if it fitted (fits with --" in first.text
    words = first.text.partition("(fits with ")[2].removesuffix(")").split()
    flags = dict(zip(words[::2], words[1::2], strict=True))
    names = {"--mbs": "microbatch_size", "--etp": "expert_tp", "--gpus": "npus"}
    more = {names.get(flag, flag.lstrip("-")): value for flag, value in flags.items()}
    better = step("llama-3-70b", **{**asked, **more})
    assert better.throughput is not None
    assert (better.throughput.memory_bytes or 0) <= (better.throughput.capacity_bytes or 0)


def test_more_gpus_are_the_remedy_where_no_plan_fits() -> None:
    report = step("llama-3-70b", npus=8, sequence=4096, microbatches=8)
    text = report.findings[0].text
    assert "(fits with --gpus " in text
    size = int(text.partition("--gpus ")[2].rstrip(")").split()[0].rstrip(";"))
    assert size > 8
    larger = step("llama-3-70b", npus=size, sequence=4096, microbatches=8)
    assert not [finding for finding in larger.findings if "does not fit" in finding.text]


def share(job: StepInputs) -> tuple[Plan, float]:
    """The plan of a job, and the share of its device's memory that it takes."""
    plan, setup = built_of(job)
    return plan, float(setup.memory([plan]).share_of(setup.device)[0])


def least(job: StepInputs, plan: Plan) -> float:
    """The share of memory that the smallest plan of the search's space takes."""
    batch, sequence = plan.global_batch, plan.sequence
    asked = job.asking(zero=plan.zero, global_batch=batch, sequence=sequence)
    space = make_space(asked, [plan.npus], fixed={})
    setup = space.setup
    return float(setup.memory([*space.plans()]).share_of(setup.device).min())


def check_fit(topology: str, names: list[str], sizes: tuple[int, ...]) -> None:
    for name in names:
        for npus in sizes:
            job = inputs(name, topology, npus=npus)
            plan, taken = share(job)
            assert taken <= 1 or least(job, plan) > 1, f"{name} on {npus} of {topology}"


@pytest.mark.parametrize(("first", "topology"), [(0, "hgx-h100"), (12, "gb200-nvl72")])
def test_no_default_plan_is_too_large_where_a_search_finds_one_that_fits(
    first: int, topology: str
) -> None:
    check_fit(topology, sorted(public_names())[first::24], (8, 64))


@pytest.mark.slow
@pytest.mark.parametrize("topology", MACHINES)
def test_no_model_is_too_large_by_default_on_any_machine(topology: str) -> None:
    check_fit(topology, sorted(public_names()), (8, 64, 256, 1024))


def test_what_would_fit_leaves_out_what_was_asked() -> None:
    asked: dict[str, Any] = {"tp": 1, "pp": 4, "ep": 64, "mbs": 1}
    report = simulate(
        "deepseek-v3", "gb200-nvl72", gpus=256, chunks=4, global_batch=2048, **asked
    ).report
    (told,) = (text for text in report.said if "it does not fit" in text)
    flags = re.findall(r"--(\w+) (\S+)", told[told.index("fits with") :])
    assert flags
    assert [name for name, value in flags if asked.get(name) == value] == []
    assert "--ep" not in told
