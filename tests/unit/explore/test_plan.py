"""The search of plans: what it looks at, what it rules out, and what it calls best."""

import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

import stepsim
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.explore.plan.asked import (
    PlanQuestion,
    answer,
    held_values,
    parse_fixed,
    parse_npu_counts,
    wider_values,
)
from stepsim.explore.plan.budget import check_plan_file
from stepsim.explore.plan.search import (
    HERE,
    Objective,
    PlanRun,
    PlanRuns,
    Workers,
    fitting_plans,
    search_plans,
)
from stepsim.files.asked import read_inputs
from stepsim.files.load import read_model
from stepsim.files.models.megatron_plan import argument_texts, counted_ends, megatron_plan
from stepsim.step.model_plan import DEFAULT_SEQUENCE, default_batch, planned, setup_of
from stepsim.step.plans import KNOWN_APART, PlanSpace, make_space, step_options_of
from stepsim.step.prepared import prepare
from stepsim.views.plan import plan_front, plot_plans
from stepsim.workload.model.choices import ExpertDispatch, Recompute
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.model import Model
from stepsim.workload.plan import PipelineOrder, Plan

SMALL = "llama-3.1-8b"
JOB: dict[str, Any] = {"global_batch": 16, "sequence": 4096}
ASKED = ("--gpus", "8", "--global-batch", "16", "--seq", "4096", "-t", "hgx-h100")
FEW = ("--fix", "mbs=1", "--fix", "recompute=none", "--fix", "vpp=1,2")


def space(
    *fix: str,
    npus: tuple[int, ...] = (8,),
    model: str = SMALL,
    most: Mapping[str, int] | None = None,
    **asked: object,
) -> PlanSpace:
    inputs = read_inputs(model, "hgx-h100", {**JOB, **asked})
    return make_space(inputs, npus, fixed=parse_fixed(fix), most=most or {})


def exact(made: PlanSpace, plan: Plan) -> int:
    return prepare(made.step(plan)).simulated().report.step_time_ps


def found_by(run: Run) -> Any:
    """The document of the small search by its command."""
    return json.loads(run("plan", SMALL, *ASKED, *FEW, "-q", "--json", "-")[1])


def test_every_plan_divides_the_job_and_none_is_left_out() -> None:
    """Against an enumeration of all products by itself."""
    made = space("recompute=none", "cp=1")
    found = {(p.tp, p.pp, p.dp, p.chunks, p.microbatch_size) for p in made.plans()}
    expected = set()
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            for chunks in range(1, 9):
                for size in (1, 2, 4, 8):
                    dp, rest = divmod(8, tp * pp)
                    whole = not rest and 16 % (dp * size) == 0
                    if not whole or (chunks > 1 and (pp == 1 or 16 // (dp * size) % pp)):
                        continue
                    stages = pp * chunks
                    equal = 32 % stages == 0 or 34 % stages == 0
                    shares = [32 // stages + (stage < 32 % stages) for stage in range(stages)]
                    fullest = max(sum(shares[rank::pp]) for rank in range(pp))
                    even = min(shares) > 0 and fullest <= 1.125 * 32 / pp
                    if equal or (chunks in (1, 2, 4, 8) and even):
                        expected.add((tp, pp, dp, chunks, size))
    assert found == expected
    assert len(list(made.plans())) == len(found)


def test_experts_are_split_inside_a_stage() -> None:
    made = space("recompute=none", "mbs=1", model="mixtral-8x7b")
    plans = list(made.plans())
    assert {plan.ep for plan in plans} == {1, 2, 4, 8}
    assert all(plan.stage_ranks % (plan.ep * plan.expert_degree) == 0 for plan in plans)
    assert all(plan.npus == 8 for plan in plans)


def test_fixed_values_and_bounds_hold() -> None:
    made = space("tp=2,4", "recompute=full", npus=(8, 16), most={"pp": 2})
    plans = list(made.plans())
    assert {plan.tp for plan in plans} == {2, 4}
    assert {plan.recompute for plan in plans} == {Recompute.FULL}
    assert {plan.pp for plan in plans} == {1, 2}
    assert {plan.npus for plan in plans} == {8, 16}


def test_stages_with_ends_that_cost_more_get_fewer_layers() -> None:
    """Its head is as long as two layers: the last of four stages is the slowest of equal ones."""
    made = space("tp=1", "pp=4", "vpp=1", "mbs=1", "recompute=none", "cp=1")
    equal, balanced = fitting_plans(made, 10)[0].plans
    assert equal.layout.equal
    counts = [each.layers for each in stage_slices(made.setup.architecture, balanced)]
    assert sum(counts) == 32
    assert counts[-1] < min(counts[:-1])
    assert exact(made, balanced) < exact(made, equal)
    options = step_options_of(balanced, made.base)
    again, _ = planned(made.setup, made.asked.topology, options)
    assert again.layout == balanced.layout


def test_depths_that_nothing_divides_are_shared_out() -> None:
    made = space("pp=4", "vpp=1", "recompute=none", "mbs=1", model="gpt2")
    assert {plan.layout.equal for plan in made.plans()} == {True}
    model = made.setup.architecture
    counted = replace(model, layers=model.layers[:11])
    plans = [*replace(made, setup=replace(made.setup, architecture=counted)).plans()]
    assert stage_slices(counted, plans[0])[-1].layers == 2, "the head counts as a layer"
    prime = replace(model, layers=model.layers[:1] * 25)
    made = replace(made, setup=replace(made.setup, architecture=prime))
    plans = [*made.plans()]
    counts = {tuple(s.layers for s in stage_slices(prime, plan)) for plan in plans}
    assert counts == {(7, 6, 6, 6)}
    assert plans
    assert not [*replace(made, base=replace(made.base, layout="equal")).plans()]


def test_the_search_finds_what_running_everything_finds() -> None:
    made = space("mbs=1", "recompute=none", "vpp=1", "cp=1", npus=(4, 8))
    whole, _ = fitting_plans(made)
    steps = [exact(made, plan) for plan in whole.plans]
    weights = {
        Objective.STEP: steps,
        Objective.TOKENS_PER_DOLLAR: [s * p.npus for s, p in zip(steps, whole.plans, strict=True)],
        Objective.MEMORY: [*map(int, whole.memory)],
    }
    assert weights.keys() == set(Objective)
    for objective, weight in weights.items():
        found = search_plans(made, runs=1000, objective=objective)
        best = found.plans[0]
        number = list(whole.plans).index(best.plan)
        assert weight[number] == min(weight), objective
        assert (found.not_run, found.passed_over) == (0, 0)
        assert found.looked_at == found.too_large + found.ruled_out + len(found.plans)
        assert best.step_ps == steps[number]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a search that runs 30 plans, with recomputation and without."""
    store = tmp_path_factory.mktemp("searched") / "plans.sqlite"
    made = space("recompute=none,full", "cp=1", npus=(4, 8))
    search_plans(made, runs=30, workers=Workers(store=store))
    return store


@pytest.mark.parametrize("objective", Objective)
def test_every_plan_says_what_its_step_goes_into(
    objective: Objective, searched: Path, tmp_path: Path
) -> None:
    """Also where the file of another search, which had faster plans, holds it."""
    kept = Workers(store=tmp_path / "plans.sqlite")
    shutil.copy(searched, tmp_path / "plans.sqlite")
    made = space("recompute=full", "cp=1", npus=(4, 8))
    for workers in (HERE, replace(kept, resume=True)):
        found = search_plans(made, runs=30, objective=objective, workers=workers)
        for one in found.plans:
            assert sum(one.run.breakdown_ps.values()) == one.step_ps


NOTHING_DOES: tuple[tuple[str, dict[str, Any], tuple[str, ...], str], ...] = (
    ("8", {"model": "llama-3.1-405b"}, (), r"the nearest, tp 8.* optimizer; on 128 GPUs: tp 8, pp"),
    ("8", {}, ("tp=1", "pp=1", "zero=0", "mbs=1", "recompute=none"), r"; without \w+=.* takes"),
    ("8", {"sequence": 1 << 22}, ("tp=1", "cp=1", "pp=1"), r" of them logits; no other size"),
    ("67", {}, (), "global_batch is 16: no multiple of dp 67 x mbs 1; on 64 GPUs: "),
    (
        "8",
        {"global_batch": 3},
        ("tp=1", "pp=1"),
        "dp 8 x mbs 1; .*; with a global batch of 8: dp 8",
    ),
    ("8", {}, ("tp=8", "pp=4"), "no multiple of .*; without tp=8: .*; on 32 GPUs: tp 8, pp 4"),
    ("8", {}, ("ep=2",), "ep 2: llama-3.1-8b has no experts; without ep=2: "),
    ("8", {"sequence": 4095}, ("cp=2",), "multiple of cp, 2; .*; with sequences of 4,096 tokens: "),
    ("8", {"global_batch": 6}, ("pp=4", "tp=2", "vpp=2", "mbs=1"), "6 microbatches are no .* pp 4"),
)


@pytest.mark.parametrize(("npus", "asked", "fix", "said"), NOTHING_DOES)
def test_where_nothing_does_what_would_is_named(
    npus: str, asked: dict[str, Any], fix: tuple[str, ...], said: str
) -> None:
    made = space(*fix, npus=parse_npu_counts(npus), **asked)
    with pytest.raises(PlanError, match=said):
        fitting_plans(made)


def test_what_would_do_does() -> None:
    made = space("tp=8", "pp=4", "mbs=1", "recompute=none")
    with pytest.raises(PlanError, match=r"on 32 GPUs: tp 8, .* takes 8\.9 GiB"):
        fitting_plans(made)
    priced, _ = fitting_plans(replace(made, npus=(32,)))
    assert round(min(priced.memory) / 2**30, 1) == 8.9


def test_no_single_change_may_do() -> None:
    made = space(model="llama-3.1-405b")
    said = r"nearest, .*; no other size, batch or option alone would do"
    with pytest.raises(PlanError, match=said):
        fitting_plans(made, 0.001)


@pytest.mark.parametrize("text", ["", "0", "8..", "16..8", "8,8", "9" * 30 + ".."])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="gpus is"):
        parse_npu_counts(text)


def test_sizes_double() -> None:
    assert parse_npu_counts("256..1024") == (256, 512, 1024)
    assert parse_npu_counts("24..100") == (24, 48, 96)
    assert parse_npu_counts("8,12") == (8, 12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp", "expected NAME=VALUE"),
        ("speed=1", "expected NAME=VALUE"),
        ("tp=x", "tp: 'x' is not"),
        ("recompute=all", "recompute is 'all'"),
    ],
)
def test_wrong_values_are_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_fixed([text])
    with pytest.raises(PlanError, match="given twice"):
        parse_fixed(["tp=1", "tp=2"])


MODEL_ARGUMENTS = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
--num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu
--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
--vocab-size 128256 --position-embedding-type rope --hidden-dropout 0 """


@pytest.mark.parametrize(
    "fix",
    [
        ("tp=2", "pp=2", "vpp=4", "mbs=2", "recompute=full"),
        ("tp=1", "pp=2", "vpp=1", "mbs=1", "recompute=none"),
        ("tp=4", "pp=1", "cp=2", "mbs=1", "recompute=none"),
        ("tp=1", "pp=4", "vpp=2", "mbs=1", "recompute=none", "cp=1"),
    ],
)
def test_megatron_arguments_are_read_back(fix: tuple[str, ...], tmp_path: Path) -> None:
    made = space(*fix, sequence=8192, dp_overlap=True)
    plan = fitting_plans(made, 10)[0].plans[-1]
    model = made.setup.architecture
    arguments = argument_texts(megatron_plan(plan, stage_slices(model, plan)))
    path = tmp_path / "run.sh"
    path.write_text(MODEL_ARGUMENTS.replace("\n", " ") + " ".join(arguments))
    read = read_model(path)
    inputs = read_inputs(read, made.asked.topology, {"npus": 8})
    setup = setup_of(inputs)
    again, _ = planned(setup, inputs.topology, inputs.options)
    names = ("tp", "cp", "pp", "dp", "chunks", "microbatch_size", "recompute", "zero")
    for name in (*names, "precision", "dp_overlap", "sequence_parallel", "sequence"):
        if name != "sequence_parallel" or plan.tp > 1:
            assert getattr(again, name) == getattr(plan, name), name
    assert stage_slices(model, again) == stage_slices(model, plan)


def test_the_command_shows_and_writes_the_best(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "best.toml"
    code, out, err = run("plan", SMALL, *ASKED, *FEW, "-q", "--toml", file, "--explain", "tp=8")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("best: ")
    assert re.search(r"searched +[0-9,]+ plans: ", out)
    assert "Megatron-LM: --tensor-model-parallel-size " in out
    assert "tp 8" in out.splitlines()[-1]
    document = found_by(run)
    best = document["plans"][0]
    step = stepsim.simulate(SMALL, "hgx-h100", **best["options"]).report
    assert step.step_time_ps == best["step_time_ps"]
    assert best["why"] == ""
    assert all(each["why"] for each in document["plans"][1:])
    steps = [each["step_time_ps"] for each in document["plans"]]
    assert steps[1:] == sorted(steps[1:])
    assert steps[0] * (1 - KNOWN_APART) <= min(steps)
    seconds = best["step_time_ps"] / PS_PER_S
    assert best["tokens_per_s_per_npu"] == pytest.approx(16 * 4096 / seconds / 8)
    code, out, _ = run("plan", file, "--check", "--max-step", f"{best['step_time_ps']} ps", "-q")
    assert code == 0
    assert "holds" in out
    code, out, _ = run(
        "plan", file, "--check", "--max-step", "1ms", "--max-bubble", "90%", "-q", "--json", "-"
    )
    assert code == 1
    lines = {line["what"]: line for line in json.loads(out)["lines"]}
    assert [lines[name]["holds"] for name in ("step", "memory", "bubble")] == [False, True, True]


def test_python_finds_the_same(run: Run) -> None:
    fix = {"mbs": 1, "recompute": "none", "vpp": [1, 2]}
    found = stepsim.plan(SMALL, "hgx-h100", gpus=8, fix=fix, **JOB)
    assert json.loads(found.to_json()) == found_by(run)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((SMALL, "--global-batch", "16", "--seq", "4096"), "gpus is missing"),
        ((SMALL, *ASKED, "--search", "zero,speed"), "search is 'speed': expected one of zero, "),
        ((SMALL, *ASKED, "--objective", "fun"), "objective is 'fun'"),
        ((SMALL, *ASKED, "--fix", "x=1"), "expected NAME=VALUE"),
        (("no-such-model", *ASKED), "no-such-model"),
    ],
)
def test_a_wrong_question_is_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = run("plan", *arguments, "-q")
    assert code == 2
    assert said in err.splitlines()[-1]


def test_a_workload_file_has_no_plans(run: Run, moe: Path) -> None:
    code, _, err = run("plan", moe, *ASKED)
    assert code == 2
    assert "expected a model" in err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "no budget"),
        ({"step": "fast"}, "budget: "),
        ({"bubble": "200%"}, "max_bubble is '200%'"),
        ({"bubble": "x"}, "max_bubble is 'x'"),
    ],
)
def test_a_wrong_budget_is_refused(asked: dict[str, str], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        check_plan_file(Path(), **asked)


# workers and files


def asked_of(*more: object) -> tuple[str, ...]:
    return ("plan", SMALL, *ASKED, *FEW, "--runs", "4", "-q", *map(str, more))


def test_workers_find_the_same_byte_for_byte(run: Run) -> None:
    alone, together = run(*asked_of()), run(*asked_of("--jobs", 2))
    assert alone[0] == 0
    assert alone == together


def test_a_killed_search_is_continued_to_the_same_table(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "plans.sqlite"
    command = [sys.executable, "-c", "from stepsim.cli import main; main()"]
    killed = subprocess.Popen([*command, *asked_of("--store", store)], stdout=subprocess.DEVNULL)
    while killed.poll() is None and not stored(store):
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    held = stored(store)
    assert held
    assert run(*asked_of("--store", store))[0] == 2
    assert run(*asked_of("--store", store, "--resume")) == run(*asked_of())
    assert stored(store) >= held


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.OperationalError):
        return int(connection.execute("SELECT count(*) FROM plan").fetchone()[0])
    return 0


def test_the_file_of_another_search_is_refused(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "plans.sqlite"
    assert run(*asked_of("--store", store))[0] == 0
    code, _, said = run(*asked_of("--store", store, "--resume", "--dtype", "fp8"))
    assert (code, "holds another search of plans: option precision" in said) == (2, True)
    assert "expected the file" in run(*asked_of("--resume"))[2]


@pytest.mark.parametrize("npus", [(8,), (2, 4, 8)])
def test_the_front_is_what_no_other_plan_beats(npus: tuple[int, ...], tmp_path: Path) -> None:
    made = space("mbs=1", "vpp=1", "cp=1", npus=npus)
    found = search_plans(made, runs=6)
    several = len(npus) > 1
    front = plan_front(found.plans, several=several)

    def both(each: Any) -> tuple[int, int]:
        return (each.plan.npus if several else each.memory_bytes), each.step_ps

    points = {both(each) for each in found.plans}
    beaten = {
        (size, step)
        for size, step in points
        if any(other != (size, step) and other[0] <= size and other[1] <= step for other in points)
    }
    assert {both(each) for each in front} == points - beaten
    plot_plans(found, tmp_path / "plans.svg")
    assert "Pareto front" in (tmp_path / "plans.svg").read_text()


def test_zero_bubble_schedules_are_searched_where_they_are_asked_for() -> None:
    asked = ("pp=4", "tp=2", "cp=1", "mbs=1", "vpp=1,2", "recompute=none")
    schedules = (*asked, "schedule=1f1b,zb-h1,zb-v")
    made = space(*schedules)
    found = search_plans(made)
    orders = {each.plan.order: each for each in found.plans}
    assert set(orders) == set(PipelineOrder)
    halved = orders[PipelineOrder.ZB_V]
    options = step_options_of(halved.plan, made.base)
    assert (options.schedule, options.chunks) == ("zb-v", None)
    assert halved.step_ps == exact(made, halved.plan)
    inputs = read_inputs(SMALL, "hgx-h100", JOB)
    document = answer(inputs, PlanQuestion(gpus="8", fix=schedules)).document(10)
    assert document.plans[0].plan.order == found.plans[0].plan.order
    assert bool(document.megatron_arguments) == (document.plans[0].plan.order == "1f1b")
    assert all(each.plan.order == "1f1b" for each in search_plans(space(*asked)).plans)


def test_batch_and_sequence_are_those_that_simulate_assumes(run: Run) -> None:
    code, out, err = run("plan", SMALL, "--gpus", "8", "-t", "hgx-h100", *FEW, "--runs", "1")
    assert code == 0
    batch = default_batch(8, 1, DEFAULT_SEQUENCE)
    assert out.splitlines()[0].endswith(f"batch {batch:,} x {DEFAULT_SEQUENCE:,} tokens")
    assert f"no sequence given: stepsim assumes {DEFAULT_SEQUENCE} tokens" in err
    assert f"no global_batch given: stepsim assumes {batch} samples" in err


def test_what_is_held_fixed_is_said_and_can_be_searched() -> None:
    asked = ("tp=2", "cp=1", "mbs=1", "recompute=none", "vpp=1")
    made = space(*asked, dp_overlap=True)
    held = held_values(made)
    assert {name: held[name] for name in ("zero", "dp_overlap", "cuda_graph", "recompute")} == {
        "zero": "1",
        "dp_overlap": "on",
        "cuda_graph": "off",
        "recompute": "none",
    }
    assert "dispatch" not in held
    wide = wider_values(["zero", "overlap", "graphs"], "megatron-core")
    wider = replace(made, fixed={**made.fixed, **wide})
    plans = list(wider.plans())
    for name, values in wide.items():
        assert {getattr(plan, name) for plan in plans} == set(values)
        assert name not in held_values(wider)
    assert len(plans) == len(set(plans))
    found = search_plans(wider, runs=4)
    assert found.plans[0].step_ps <= search_plans(made, runs=4).plans[0].step_ps
    best = found.plans[0].plan
    assert exact(wider, best) == found.plans[0].step_ps


def test_what_plans_cannot_tell_apart_is_tried_once() -> None:
    made = space("pp=1", "cp=1", "mbs=1", "recompute=none", model="mixtral-8x7b")
    wide = wider_values(["overlap", "dispatch"], "megatron-core")
    for plan in replace(made, fixed={**made.fixed, **wide}).plans():
        assert not (plan.tp == 1 and plan.tp_comm_overlap)
        assert not (plan.dp * plan.cp == 1 and plan.dp_overlap)
        assert not (plan.ep == 1 and plan.dispatch is ExpertDispatch.DEEPEP)
    assert made.setup.architecture.is_sparse


def test_torchtitan_is_searched_with_what_it_has() -> None:
    made = space("tp=1", framework="torch-fsdp-compiled")
    assert {plan.zero for plan in made.plans()} == {3}
    wide = wider_values(["zero", "recompute"], "torch-fsdp-eager")
    assert wide == {"zero": (0, 3), "recompute": ("none", "operators", "full")}


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("megatron-core", "Megatron-LM: --tensor-model-parallel-size "),
        ("megatron-bridge", "Megatron-Bridge: model.tensor_model_parallel_size="),
        ("torchtitan", "torchtitan:\n[model]\nname = "),
        ("nanotron", "how nanotron is launched is not known here; stepsim simulate: --npus 8 "),
    ],
)
def test_a_plan_is_printed_as_its_framework_is_launched(
    run: Run, framework: str, said: str
) -> None:
    asked = (*ASKED, *FEW, "--runs", "1", "--top", "1", "--framework", framework, "-q")
    _, out, _ = run("plan", SMALL, *asked)
    assert said in out
    assert ("Megatron-LM" in out) == (framework == "megatron-core")
    if framework == "nanotron":
        flags = shlex.split(out.split("stepsim simulate: ")[1])
        _, step, _ = run("simulate", SMALL, "-t", "hgx-h100", *flags, "-q", "--json", "-")
        _, plans, _ = run("plan", SMALL, *asked, "--json", "-")
        best = json.loads(plans)["plans"][0]["step_time_ps"]
        assert json.loads(step)["step_time_ps"] == best


def test_what_a_framework_refuses_is_passed_over() -> None:
    """Two query groups: Megatron-LM splits them over at most two ranks of tp."""
    made = space("cp=1", "vpp=1", "mbs=1", "recompute=none", "pp=1")
    model = made.setup.architecture
    attention = replace(model.layers[0].attention, kv_heads=2)
    few = replace(model, layers=tuple(replace(each, attention=attention) for each in model.layers))
    made = replace(
        made,
        setup=replace(made.setup, architecture=few),
        asked=replace(made.asked, workload=Model(source="few", architecture=few)),
        fixed={**made.fixed, "tp": (2, 4, 8)},
    )
    found = search_plans(made)
    assert {each.plan.tp for each in found.plans} == {2}
    assert found.passed_over == 2
    said = "2 plans were passed over, which megatron-core refuses: --num-query-groups is a multiple"
    assert any(said in each for each in found.refused)
    alone = replace(made, fixed={**made.fixed, "tp": (8,)})
    asked = search_plans(alone)
    assert [each.plan.tp for each in asked.plans] == [8]
    assert asked.passed_over == 0


@pytest.mark.parametrize(("gain", "first"), [(0.02, "even"), (0.05, "uneven")])
def test_an_uneven_layout_has_to_gain_more_than_is_known(
    gain: float, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = space("tp=1", "pp=4", "vpp=1", "mbs=1", "recompute=none", "cp=1")

    def run(self: Any, plan: Plan, *later: Plan) -> PlanRun:
        uneven = plan.layout.slices and counted_ends(plan.layout.slices) is None
        parts = {part.key: 0 for part in Part}
        step = int(PS_PER_S * (1 - gain if uneven else 1))
        return PlanRun(
            workload="x",
            step_time_ps=step,
            pipeline_time_ps=step,
            bubble_fraction=0.0,
            breakdown_ps=parts,
            throughput=None,
        )

    monkeypatch.setattr(PlanRuns, "result", run)
    found = search_plans(made, memory_limit=10)
    assert len(found.plans) == 2
    assert found.plans[0].plan.layout.equal == (first == "even")
    assert found.equal(found.plans) == (2 if gain < KNOWN_APART else 1)
    assert found.binds == "compute alone"


SPARSE = {"model": "qwen3-30b-a3b", "global_batch": 64}


@pytest.mark.parametrize(
    ("fix", "asked", "said"),
    [
        (("tp=8", "pp=1", "mbs=8"), {}, "exposed tp: "),
        (("tp=1", "pp=8", "mbs=1"), {}, "bubble: "),
        (("tp=4", "pp=1", "mbs=1", "ep=8", "etp=1"), SPARSE, "host: "),
    ],
)
def test_the_largest_loss_is_named(fix: tuple[str, ...], asked: dict[str, Any], said: str) -> None:
    """Launches that kernels wait for are one."""
    made = space(*fix, "cp=1", "vpp=1", "recompute=none", **asked)
    assert search_plans(made, memory_limit=10).binds.startswith(said)


@pytest.mark.parametrize(
    ("topology", "fixed", "line"),
    [
        ("hgx-h100", "tp=2", "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ("hgx-h100", "tp=1", ""),
        ("hgx-b200", "tp=2", ""),
        ("hgx-h100", "zero=3", "unset CUDA_DEVICE_MAX_CONNECTIONS"),
    ],
)
def test_what_megatron_asserts_of_queues_is_printed(
    run: Run, topology: str, fixed: str, line: str
) -> None:
    job = (SMALL, "--gpus", "8", "--global-batch", "16", "--seq", "2048", "-t", topology)
    more = ("--search", "zero") if fixed.startswith("zero") else ()
    _, out, _ = run("plan", *job, "--fix", fixed, "--fix", "cp=1", *more, "--runs", "1", "-q")
    found = [each for each in out.splitlines() if "CUDA_DEVICE_MAX_CONNECTIONS" in each]
    assert found == [line] * bool(line)


def test_the_best_plan_has_the_accuracy_and_the_range_of_its_step(run: Run) -> None:
    """What `simulate` says of the same plan, in the same words and numbers."""
    fixed = [f"--fix={each}" for each in ("tp=2", "pp=1", "cp=1", "mbs=1", "recompute=none")]
    plan = ("--tp", "2", "--mbs", "1", "--recompute", "none")
    said, rates = [], []
    for command in (("plan", SMALL, *ASKED, *fixed), ("simulate", SMALL, *ASKED, *plan)):
        lines = run(*command, "-q", *(["--full"] * (command[0] == "simulate")))[1].splitlines()
        said.append([each.split() for each in lines if each.startswith(("accuracy ", "range "))])
        rates.append(json.loads(run(*command, "-q", "--json", "-")[1])["throughput"])
    assert len(said[0]) == 2
    assert said[0] == said[1]
    memory = {"memory_bytes": rates[1]["memory_bytes"], "capacity_bytes": 80 * 2**30}
    assert rates[0] | memory == rates[1]


def test_a_document_says_what_stands_beside_the_best(run: Run) -> None:
    found = found_by(run)
    steps = [each["step_time_ps"] for each in found["plans"]]
    near = [abs(step / steps[0] - 1) <= found["known_apart"] for step in steps]
    assert found["equal_plans"] == [*near, False].index(False)
    assert found["launch"] == found["megatron_arguments"]
    assert (found["launch_form"], found["framework"]) == ("megatron-lm", "megatron-core")
    assert found["held"]["zero"] == "1"


def test_a_schedule_that_no_search_knows_is_refused() -> None:
    with pytest.raises(PlanError, match=r"schedule is .dualpipe.: expected one of 1f1b"):
        space("schedule=dualpipe")
    made = space("schedule=zb-v", "vpp=1", "pp=2")
    with pytest.raises(
        PlanError, match=r"pp 2: schedule zb-v needs other .*; without schedule=zb-v: "
    ):
        fitting_plans(made)
