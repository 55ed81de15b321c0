"""Published steps: read, refused, and predicted as well as promised."""

from collections import Counter
from pathlib import Path
from statistics import fmean, median

import pytest
from accuracy_cards import answered, complete
from accuracy_memory import contradictory
from accuracy_order import most_npus
from helpers import Run
from left_out import ALSO_OF
from model_constants import CARDS
from published_rows import table

from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.files.accelerators import framework_names, read_device, read_framework
from stepsim.files.model_steps import PublishedStep, is_published_steps, read_published_steps
from stepsim.runs.published import (
    PublishedDocument,
    PublishedRun,
    PublishedValidation,
    errors_of,
    model_of,
    validate_published,
)
from stepsim.views.validation import published_shown
from stepsim.workload.model.architecture import GroupedAttention, LatentAttention
from stepsim.workload.model.choices import (
    ContextParallelKind,
    ExpertDispatch,
    GraphScope,
    RecomputeModule,
)
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.mamba import Mamba2


def read(folder: Path, *rows: dict[str, str]) -> tuple[tuple[PublishedStep, ...], tuple[str, ...]]:
    """Steps of a table of these changes to a usual row, and what is said of it."""
    return read_published_steps(table(folder, *rows))


def read_one(folder: Path, change: dict[str, str]) -> PublishedStep:
    (step,), _ = read(folder, change)
    return step


def test_a_table_is_known_by_its_header(tmp_path: Path) -> None:
    assert is_published_steps(table(tmp_path, {}))
    other = tmp_path / "other.csv"
    other.write_text("workload,topology,measured_s\n")
    assert not is_published_steps(other)


def test_a_row_is_a_model_a_plan_and_a_machine(tmp_path: Path) -> None:
    (step,), warnings = read(tmp_path, {})
    assert not warnings
    assert (step.plan.npus, step.plan.microbatches) == (8, 16)
    assert step.architecture.depth == 8
    assert step.node_bandwidth == 50e9


def test_replicas_that_no_cell_counts_are_those_that_fill_the_gpus(tmp_path: Path) -> None:
    assert read_one(tmp_path, {"dp": "", "n_gpus": "16"}).plan.dp == 4
    assert read_one(tmp_path, {"dp": "4", "n_gpus": ""}).plan.npus == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tp": "-2"}, "run: tp is '-2': expected a whole number"),
        ({"pp": "0"}, "run: pp is '0': expected a whole number from 1"),
        ({"gpn": "0"}, "run: gpn is '0': expected a whole number from 1"),
        ({"n_gpus": "16"}, "run: n_gpus is 16: expected tp x cp x pp x dp, 8"),
        ({"act": "tanh"}, "run: act is 'tanh': expected one of swiglu"),
        ({"precision": "int8"}, "run: precision is 'int8'"),
        ({"step_s": "fast"}, "run: step_s is 'fast': expected a number from 1e-06"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(TraceError, match=f"row 2 is left out: {message}") as error:
        read(tmp_path, change)
    assert "steps.csv" in str(error.value)
    steps, (warning,) = read(tmp_path, {}, change)
    assert len(steps) == 1
    assert f"steps.csv: row 3 is left out: {message}" in warning


def test_rows_that_no_plan_expresses_are_left_out_with_a_warning(tmp_path: Path) -> None:
    steps, warnings = read(tmp_path, {}, {"gbs": "65"})
    assert len(steps) == 1
    assert "row 3 is left out: global_batch is 65" in warnings[0]
    found = validate_published(read(tmp_path, {}, {"gpu": "Z1"})[0], leave_out=())
    assert len(found.rows) == 1
    assert found.warnings[0] == "1 of 2 runs are not compared: 1 refused"
    assert "no device named 'Z1'" in found.warnings[1]


def test_runs_that_are_not_compared_are_counted(run: Run, tmp_path: Path) -> None:
    rows: tuple[dict[str, str], ...] = (
        {},
        {"complete": "0"},
        {"complete": "0"},
        {"step_s": ""},
        {"gpu": "Z1"},
        {"gbs": "65"},
    )
    path = table(tmp_path, *rows)
    _, _, said = run("validate", path)
    expected = (
        "5 of 6 runs are not compared: 2 without their whole layout (complete is 0), "
        "1 without a time (step_s), 2 refused"
    )
    assert expected in said
    steps, _ = read_published_steps(path)
    assert not validate_published(steps[:1]).warnings
    assert validate_published(steps, leave_out=["made"]).warnings == ()


def test_a_source_of_both_kinds_of_models_has_them_apart(tmp_path: Path) -> None:
    experts = {"experts": "8", "topk": "2", "ep": "2", "etp": "1", "step_s": "0.7"}
    steps, _ = read(tmp_path, {}, {"source": "other"}, experts)
    found = validate_published(steps)
    assert [(each.source, each.count) for each in found.sources] == [
        ("made dense", 1),
        ("made with experts", 1),
        ("other", 1),
        ("all dense", 2),
        ("all with experts", 1),
    ]
    both = errors_of("together", found.rows[:2])
    assert both.mean == pytest.approx(found.sources[3].mean)


def test_one_factor_makes_one_row_exact(tmp_path: Path) -> None:
    found = validate_published(read(tmp_path, {})[0])
    assert found.rows[0].calibrated_error == pytest.approx(0)
    assert found.rows[0].error != 0
    assert found.sources[0].memory_mean is not None


@pytest.fixture(scope="module")
def steps(shared: Path) -> tuple[PublishedStep, ...]:
    """All published runs that constants may be held against."""
    found, warnings = read_published_steps(shared / "reference" / "steps" / "dev.csv")
    assert all("no framework named 'jax-te'" in each for each in warnings)
    return found


@pytest.fixture(scope="module")
def judged(steps: tuple[PublishedStep, ...]) -> PublishedValidation:
    """All dense and sparse runs, those of nanotron on up to two nodes."""
    found = validate_published([step for step in steps if step.plan.npus <= most_npus(step)])
    assert all("are not compared: 10 without their whole layout" in each for each in found.warnings)
    return found


@pytest.fixture(scope="module")
def every(
    steps: tuple[PublishedStep, ...], judged: PublishedValidation
) -> tuple[PublishedRun, ...]:
    """All runs, those of nanotron on more nodes too."""
    larger = validate_published([step for step in steps if step.plan.npus > most_npus(step)])
    return (*judged.rows, *larger.rows)


@pytest.fixture(scope="module")
def dev(judged: PublishedValidation) -> PublishedValidation:
    rows = tuple(row for row in judged.rows if row.step.source != "nanotron")
    return replace(judged, rows=rows)


@pytest.mark.parametrize(("sparse", "most"), [(False, 0.08), (True, 0.14)])
def test_one_set_of_constants_fits_all_sources(
    judged: PublishedValidation, sparse: bool, most: float
) -> None:
    """The mean of the sources' means; with each source left out it is in docs/model_accuracy.md."""
    rows = [row for row in judged.rows if row.step.architecture.is_sparse is sparse]
    by_source: dict[str, list[float]] = {}
    for row in rows:
        by_source.setdefault(row.step.source, []).append(abs(row.error))
    assert len(by_source) >= 5
    assert fmean(map(fmean, by_source.values())) <= most


def test_memory_of_simumax_runs(dev: PublishedValidation) -> None:
    simumax = errors_of("simumax", [row for row in dev.rows if row.step.source == "simumax-b200"])
    assert simumax.memory_mean is not None
    assert simumax.memory_largest is not None
    assert simumax.memory_mean <= 0.015
    assert simumax.memory_largest <= 0.04


@pytest.mark.parametrize(("source", "most"), [("torchtitan", 0.03), ("bigscience", 0.055)])
def test_memory_that_sources_report(dev: PublishedValidation, source: str, most: float) -> None:
    """One run of bigscience reports more than with larger microbatches; the others are closer."""
    rows = [row for row in dev.rows if row.step.source == source]
    errors = errors_of(source, rows)
    assert errors.memory_mean is not None
    assert errors.memory_calibrated is not None
    assert errors.memory_mean <= most
    assert errors.memory_calibrated <= most
    rest = errors_of(source, [row for row in rows if row not in contradictory(rows)])
    assert rest.memory_calibrated is not None
    assert rest.memory_calibrated <= 0.035


@pytest.mark.parametrize("source", ["bigscience", "llm-foundry", "torchtitan", "simumax-b200"])
def test_what_ran_is_predicted_to_fit(dev: PublishedValidation, source: str) -> None:
    assert all(row.fits for row in dev.rows if row.step.source == source)


@pytest.fixture(scope="module")
def cards(shared: Path) -> tuple[PublishedStep, ...]:
    return read_published_steps(shared / "reference" / "steps" / "cards_dev.csv")[0]


def test_nearly_all_that_ran_is_predicted_to_fit(
    every: tuple[PublishedRun, ...], cards: tuple[PublishedStep, ...]
) -> None:
    """Two plans of Megatron-Bridge are such as no GPU of theirs could hold as printed."""
    rows = (*every, *validate_published(cards).rows)
    too_large = [row for row in rows if not row.fits]
    assert len(too_large) <= 0.03 * len(rows)
    bridge = [row for row in too_large if row.step.framework == "megatron-bridge"]
    assert len(bridge) == 2, [row.step.name for row in bridge]
    assert all(row.step.plan.microbatch_size == 2 for row in bridge)


def test_memory_of_nanotron_has_little_bias(every: tuple[PublishedRun, ...]) -> None:
    errors = [
        row.memory_error
        for row in every
        if row.step.source == "nanotron" and row.memory_error is not None
    ]
    assert abs(sum(errors)) / len(errors) <= 0.03
    assert sum(map(abs, errors)) / len(errors) <= 0.11


def test_small_models_of_nanotron_have_tied_ends(tmp_path: Path) -> None:
    """28 layers of 3072 and 131,072 words: 3.57 billion parameters, as the playbook says."""
    shape = {"hidden": "3072", "layers": "28", "heads": "32", "kv_heads": "32", "head_dim": "96"}
    other = {"ffn": "8192", "act": "swiglu", "vocab": "131072"}
    names = {"model": "nano-3b"}, {"model": "nano-8b"}
    steps, _ = read(tmp_path, *(shape | other | name for name in names))
    counts = [step.architecture.parameters() / 1e9 for step in steps]
    assert counts == pytest.approx([3.574, 3.976], abs=0.001)


def test_ends_count_as_layers_where_only_so_they_come_out_even(tmp_path: Path) -> None:
    even, odd, neither = ({"layers": layers, "pp": "4", "dp": "1"} for layers in ("8", "14", "15"))
    steps, _ = read(tmp_path, even, odd, neither)
    layers = [
        [each.layers for each in stage_slices(step.architecture, step.plan)] for step in steps
    ]
    assert layers == [[2, 2, 2, 2], [3, 4, 4, 3], [4, 4, 4, 3]]


@pytest.mark.parametrize(
    ("change", "modules", "offload"),
    [
        ({}, (), 40),
        ({"gpu": "H100"}, (), 0),
        ({"zero": "1"}, (), 0),
        ({"precision": "nvfp4"}, (), 0),
        ({"recompute": "none"}, (), 0),
        (
            {"recompute": "none", "note": "recompute [mla_up_proj]; MTP 1"},
            (RecomputeModule.UP_PROJECTION,),
            0,
        ),
        ({"recompute": "selective-op", "note": "recompute [mlp]"}, (RecomputeModule.MLP,), 0),
        ({"recompute": "full", "note": "recompute [mlp]"}, (), 0),
    ],
)
def test_recipes_say_what_tables_leave_out_of_one_kind_of_plan(
    tmp_path: Path, change: dict[str, str], modules: tuple[RecomputeModule, ...], offload: int
) -> None:
    kind = {"model": "llama3-70b", "gpu": "GB200", "precision": "fp8", "zero": "3"}
    text = {"framework": "megatron-bridge", "recompute": "unknown", "note": ""}
    plan = read_one(tmp_path, kind | text | change).plan
    if modules or not change or "recompute" in change:
        assert plan.recompute_modules == modules
    assert plan.offload_layers == offload


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"note": "Mamba2 hybrid dense; shape not found in any source read", "heads": ""},
            "the shape of small is not known",
        ),
        (
            {"note": "MTP 2; Mamba2 hybrid", "model": "own-hybrid"},
            "no public model own-hybrid says its blocks",
        ),
    ],
)
def test_a_run_of_unknown_shape_is_left_out_by_name(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    steps, (warning,) = read(tmp_path, {}, change | {"id": "7"})
    assert len(steps) == 1
    assert warning.endswith(f"row 3 is left out: run 7: {said}")


def test_a_note_says_how_a_run_was_set_up(tmp_path: Path) -> None:
    note = (
        "26.06.01 NeMo Container; LoRA; packed sequences: attention within samples; flex/hybridep; "
        "CUDA graph TE [attn,moe_router]; first/last stage layers 3/5"
    )
    step = read_one(tmp_path, {"note": note, "cuda_graph": "1"})
    plan = step.plan
    assert step.release == "26.06.01"
    assert plan.adapters
    assert plan.attended == 256
    assert plan.dispatch is ExpertDispatch.HYBRIDEP
    assert plan.graph_scopes == (GraphScope.ATTENTION, GraphScope.ROUTER)
    assert [each.layers for each in stage_slices(step.architecture, plan)] == [3, 5]
    whole = "CUDA graph full-iteration; layout Et*5|t*3L"
    step = read_one(tmp_path, {"note": whole, "cuda_graph": "1"})
    assert step.plan.graph_scopes == ()
    assert [each.layers for each in stage_slices(step.architecture, step.plan)] == [5, 3]
    assert step.release is None


def test_a_hybrid_of_a_public_name_has_its_blocks_and_further_tokens(tmp_path: Path) -> None:
    shape = {"hidden": "4096", "layers": "88", "heads": "32", "kv_heads": "2", "ffn": "2688"}
    other = {"act": "sqrelu", "vocab": "131072", "experts": "512", "topk": "22"}
    row = {"model": "nemotron-3-super", "note": "MTP 2", "pp": "1", "tp": "1", "dp": "8"}
    step = read_one(tmp_path, shape | other | row)
    kinds = [type(layer.attention) for layer in step.architecture.layers]
    assert kinds.count(Mamba2) == 40
    assert len(step.architecture.prediction_layers) == 2


def test_what_a_table_leaves_out_is_as_in_the_release(tmp_path: Path) -> None:
    shape = {"hidden": "2048", "layers": "48", "heads": "32", "kv_heads": "4", "ffn": "768"}
    other = {"act": "swiglu", "experts": "128", "topk": "8", "model": "qwen3-30b", "tp": "1"}
    job = {"gpu": "GB200", "precision": "mxfp8", "framework": "megatron-bridge", "pp": "1"}
    silent = "NeMo Container; recompute and overlap not printed"
    rows = [
        shape | other | job | {"dp": "8", "note": f"{at} {silent}"} for at in ("26.04", "26.06")
    ]
    steps, _ = read(tmp_path, *rows)
    graphs = [model_of(step).framework.graph_scopes for step in steps]
    assert graphs == [(GraphScope.ROUTER, GraphScope.PREPROCESS), ()]
    assert all(step.plan.cuda_graph and step.plan.graph_scopes is None for step in steps)
    assert {step.plan.dispatch for step in steps} == {ExpertDispatch.HYBRIDEP}
    before, after = (float(model_of(step).seconds([step.plan])[0]) for step in steps)
    assert after < before


def test_cards_of_known_shape_are_answered_as_well_as_promised(shared: Path) -> None:
    """Of no model of them a constant was set; one recipe sees images of a size that none says."""
    runs, refused = answered(shared / "reference" / "steps" / "cards_dev.csv")
    assert len(runs) == 79
    assert len(refused) == 5
    assert all("is not known" in line for line in refused)
    kinds: dict[str, list[float]] = {}
    for run in complete(runs):
        kinds.setdefault(run.kind, []).append(abs(run.error))
        parts = run.shares
        spent = parts.compute + parts.exchanged + parts.host + parts.rest
        assert spent == pytest.approx(run.predicted_s)
    tuned = sorted(kinds["tuned"])
    assert len(tuned) == 27
    assert fmean(tuned) <= 0.12
    assert tuned[-2] <= 0.25
    assert median(kinds["pretrain"]) <= 0.15


@pytest.mark.parametrize(
    ("dp", "tp", "pp", "size"),
    [("48", "8", "1", "1"), ("32", "2", "6", "2"), ("32", "2", "6", "1")],
)
def test_runs_that_ran_out_of_memory_are_predicted_not_to_fit(
    tmp_path: Path, dp: str, tp: str, pp: str, size: str
) -> None:
    """BigScience, tr11-176B chronicles of 25 February 2022: 72 layers of 14336 on 384 A100."""
    run = {"dp": dp, "tp": tp, "pp": pp, "mbs": size, "gbs": "6144", "n_gpus": "384"}
    shape = {"hidden": "14336", "layers": "72", "heads": "64", "kv_heads": "64", "head_dim": "224"}
    other = {"ffn": "57344", "vocab": "250880", "gpu": "A100-80GB", "recompute": "full"}
    kind = {"framework": "megatron-deepspeed", "precision": "fp16", "attn": "unfused"}
    text = {"step_s": "", "mem_gib": "OOM", "note": "stopped"}
    steps, warnings = read(tmp_path, run | shape | other | kind | text)
    assert not warnings
    found = validate_published(steps)
    assert not found.rows
    assert not found.ran_out[0].fits
    assert PublishedDocument.of(found).ran_out[0].memory_share > 1
    *_, said = published_shown(found)
    assert said == "memory: 0 of 0 runs are predicted to fit, 1 of 1 that ran out not to"


@pytest.mark.parametrize(
    ("file", "framework"),
    [
        ("x/llama3_h100_202412_torchtitan.md", "torch-fsdp-compiled-2024"),
        ("x/asyncTP_llama3_h100_2025-06_torchtitan.md", "torch-fsdp-compiled"),
        ("", "torch-fsdp-compiled"),
    ],
)
def test_a_framework_is_that_of_the_year(tmp_path: Path, file: str, framework: str) -> None:
    path = table(tmp_path, {"framework": "torchtitan-compile"})
    header, row = path.read_text().splitlines()
    path.write_text(f"{header},prov\n{row},{file}\n")
    (step,), _ = read_published_steps(path)
    assert read_framework(step.framework).name == framework


def test_the_network_of_a_source_is_its_own(tmp_path: Path) -> None:
    changes = {"source": "bigscience", "note": "by nvidia-smi"}
    (first, second), _ = read(tmp_path, changes, {"source": "bigscience"})
    assert first.node_bandwidth == 50e9  # four links of 100 Gb/s
    assert second.node_bandwidth == 50e9
    (other,), _ = read(tmp_path, {"source": "vtrain-multi", "note": ""})
    assert other.node_bandwidth == 100e9


def test_the_document_holds_every_row(dev: PublishedValidation) -> None:
    document = PublishedDocument.of(dev)
    assert len(document.rows) == len(dev.rows)
    assert document.rows[0].error == dev.rows[0].error


def test_errors_that_frameworks_state_are_of_all_runs(
    judged: PublishedValidation, cards: tuple[PublishedStep, ...]
) -> None:
    """They are written by `python benchmarks/model_constants.py ../shared --errors`.

    Runs in the repository have no part in a range; test_coverage holds them to their record.
    """
    found: Counter[tuple[str, str, bool, bool]] = Counter()
    whole = [step for step in cards if step.is_complete and step.source in CARDS]
    for step in (*(row.step for row in judged.rows), *whole):
        name, device = read_framework(step.framework).name, read_device(step.device).name
        model = step.architecture
        for framework in {name, ALSO_OF.get(name, name)}:
            found[framework, device, model.is_sparse, model.mixes] += 1
    stated = {
        (name, each.device, each.sparse, each.mixes): each
        for name in framework_names()
        for each in read_framework(name).errors
        if each.others
    }
    own = Counter({key: each.runs for key, each in stated.items() if each.runs})
    assert own <= found
    assert all(mixes for *_, mixes in found - own)
    for each in stated.values():
        assert bool(each.runs) == (0 < each.median <= each.ninety)
        assert each.low < 1 < each.high
        assert each.others >= 3


def test_a_model_with_experts_is_the_public_one_of_its_name(tmp_path: Path) -> None:
    """Columns have no latent attention, shared experts or dense layers; the name tells them."""
    shape = {
        "hidden": "7168",
        "layers": "4",
        "heads": "128",
        "kv_heads": "128",
        "ffn": "2048",
        "act": "swiglu",
        "vocab": "129280",
        "experts": "256",
        "topk": "8",
    }
    other = shape | {"model": "deepseek-v3", "experts": "64"}
    rows = ({**shape, "model": name} for name in ("deepseek-v3", "deepseek-v3-d1", "mine"))
    full, one, mine, different = (step.architecture for step in read(tmp_path, *rows, other)[0])
    assert [layer.is_sparse for layer in full.layers] == [False, False, False, True]
    assert [layer.is_sparse for layer in one.layers] == [False, True, True, True]
    assert isinstance(full.layers[0].attention, LatentAttention)
    for own in (mine, different):
        assert all(layer.is_sparse for layer in own.layers)
        assert isinstance(own.layers[0].attention, GroupedAttention)


def test_runs_that_share_a_sequence_take_longer_by_their_hops(
    steps: tuple[PublishedStep, ...],
) -> None:
    """torchtitan's are balanced by its code, and too short so; in pieces their mean is too long."""
    runs = [step for step in steps if step.source == "torchtitan" and step.plan.cp > 1]
    assert {step.plan.context for step in runs} == {ContextParallelKind.ALL_GATHER}
    errors: list[list[float]] = []
    for step in runs:
        model, measured = model_of(step), step.measured_s
        assert measured
        context = model.framework.context
        cheap = replace(context, hides=True, merge_bytes=0.0, sum_bytes=0.0)
        each = (cheap, context, replace(context, balanced=False))
        found = [replace(model, framework=replace(model.framework, context=way)) for way in each]
        errors.append([float(way.seconds([step.plan])[0]) / measured - 1 for way in found])
    free, hops, pieces = (fmean(column) for column in zip(*errors, strict=True))
    assert free < hops < 0 < pieces
    assert hops > -0.2


def test_attention_of_transformer_engine_shares_a_sequence_as_it_does(
    steps: tuple[PublishedStep, ...],
) -> None:
    (run,) = (step for step in steps if step.source == "automodel-2026" and step.plan.cp > 1)
    assert model_of(run).framework.context == ContextParallel()
    assert run.plan.context is ContextParallelKind.RING
