"""`stepsim plan`: which plan is best, and with --check, whether one is within a budget."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from stepsim.base.errors import PlanError, printable, within
from stepsim.base.units import format_time_ps
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import (
    ON_COMMAND_LINE,
    LengthOptions,
    OneStepOptions,
    refuse_beside,
    refuse_given,
    takes,
)
from stepsim.cli.terminal import (
    FILE,
    CsvOption,
    JsonOption,
    Stopped,
    command_bar,
    figure,
    show,
    show_tables,
    warn,
    write_rows,
)

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import DrawnBatches
    from stepsim.explore.plan.asked import PlanQuestion

_SEARCHED = {
    *("npus", "microbatches", "tp", "cp", "pp", "ep", "expert_tp", "chunks", "schedule"),
    *("microbatch_size", "recompute", "recompute_layers", "zero", "shard_ranks"),
    *("activation_size", "group_size", "memory_limit"),
}
_ASKED = ON_COMMAND_LINE - _SEARCHED
_BUDGET = ("max_bubble", "max_memory", "max_step")
# Options that do something beside --check.
_OF_CHECK = {*_BUDGET, "model", "check", "calibration", "json", "csv"}


@dataclass(frozen=True, kw_only=True)
class _SearchOptions(LengthOptions, OneStepOptions):
    """What a search takes beside the options that all its plans share."""

    gpus: str = flag(
        "Sizes of the job: 512, or 256,512, or 256..1024 (doubling).",
        "--gpus",
        "--npus",
        default="",
    )
    fix: tuple[str, ...] = flag("Values an option may take, e.g. tp=8 or mbs=1,2. Repeatable.")
    search: str | None = flag("Options to vary too, of zero, recompute, overlap, dispatch, graphs.")
    max_pp: int | None = flag("Largest number of pipeline stages.")
    objective: str = flag("What counts: step, tokens-per-dollar or memory.", default="step")
    memory_share: float | None = flag(
        "Share of the device memory that a plan may use.", shown="0.92, else 1"
    )
    runs: int = flag("Plans to simulate at most.", default=20)
    top: int = flag("Plans to show at most.", default=10)
    explain: str | None = flag("Explain why this plan is not the best, e.g. tp=8,pp=4.")
    jobs: int | None = flag("Local processes.", "--jobs", "-j", shown="1")
    store: Path | None = flag("SQLite file for simulated plans.", writes=FILE)
    resume: bool = flag("Take what the file of --store holds.", "--resume", default=False)
    executor: str = flag("Who computes: local, or dask (with --scheduler).", default="local")
    scheduler: str | None = flag("Address of a Dask scheduler.")
    json: JsonOption = None
    csv: CsvOption = None
    full: bool = flag("Print the model's arguments too, for Megatron-LM.", "--full", default=False)
    plot: Path | None = figure("Draw step against GPUs or memory")
    toml: Path | None = flag("Write the best plan as a file, which --check takes.", writes=FILE)
    check: bool = flag(
        "Compare a plan of --toml with a budget, in place of a search.",
        "--check",
        default=False,
        panel="A plan against a budget",
    )
    max_step: str | None = flag("Longest step, e.g. 12.5s.", panel="A plan against a budget")
    max_memory: str | None = flag(
        "Most memory of a rank, e.g. 76GiB.", panel="A plan against a budget"
    )
    max_bubble: str | None = flag(
        "Largest pipeline bubble, e.g. 8%.", panel="A plan against a budget"
    )


@takes(_SearchOptions, _ASKED)
def plan_command(
    model: Annotated[
        Path,
        argument("MODEL", "A model by name or file; a plan of --toml for --check."),
    ],
    options: _SearchOptions,
) -> None:
    """Search the plans of a model on some GPUs for the best.

    A closed form ranks all plans, and the best ones are simulated. With --check, simulate one plan
    and compare it with a budget; exit code 1 if it exceeds the budget.
    """
    from stepsim.explore.plan.asked import answer
    from stepsim.explore.plan.search import Workers
    from stepsim.views.plan import plans_shown

    if options.check:
        refuse_beside("--check", _OF_CHECK)
        _check(model, options)
        return
    refuse_given("a budget is for a plan file, which --check takes", _BUDGET)
    question, job = _question(options), options.inputs(model)
    workers = Workers(
        jobs=options.jobs,
        executor=options.executor,
        scheduler=options.scheduler,
        store=options.store,
        resume=options.resume,
    )
    try:
        with command_bar("simulating plans") as bar:
            progress = bar and (
                lambda done, total, best_ps: bar(done, total, f"best {format_time_ps(best_ps)}")
            )
            found = answer(job, question, progress, workers)
    except Stopped as stopped:
        kept = f"{printable(str(options.store))} keeps what is done: --resume continues"
        raise Stopped(stopped.args[0], kept if options.store else "") from None
    document = found.document(options.top)
    if options.plot:
        from stepsim.views.plan import plot_plans

        plot_plans(found.search, options.plot)
    warn(document.warnings)
    if options.toml:
        from stepsim.files.models.launch import write_plan

        name = options.topology or job.topology.name
        found_options = {**document.plans[0].options, **options.typed_files()}
        write_plan(options.toml, str(model), name, found_options)
    write_rows(options.csv, document)
    show(options.json, document.to_json, plans_shown(document, full=options.full))
    if options.explain:
        show_tables([found.explain(options.explain)])


def _question(options: _SearchOptions) -> "PlanQuestion":
    from stepsim.explore.plan.asked import PlanQuestion

    if not options.gpus:
        raise PlanError("gpus is missing: expected 512, 256,512 or 256..1024 (--gpus)")
    options.check_lengths()
    within("top", options.top, 1)
    return PlanQuestion(
        gpus=options.gpus,
        fix=options.fix,
        search=tuple(name.strip() for name in (options.search or "").split(",") if name.strip()),
        max_pp=options.max_pp,
        objective=options.objective,
        memory_share=options.memory_share,
        runs=options.runs,
        drawn=_drawn(options),
    )


def _drawn(options: _SearchOptions) -> "DrawnBatches | None":
    """The batches that plans are judged by."""
    from stepsim.explore.batches.draws import DrawnBatches

    if options.lengths is None:
        return None
    packer, steps = options.packers or "first-fit", options.steps
    steps = 100 if steps is None else steps
    return DrawnBatches.named(options.lengths, [packer.strip()], steps, options.seed)


def _check(plan: Path, options: _SearchOptions) -> None:
    """Simulate a plan and compare it with a budget; exit code 1 if it exceeds the budget."""
    from stepsim.explore.plan.budget import check_plan_file
    from stepsim.views.plan import budget_shown

    found = check_plan_file(
        plan,
        step=options.max_step,
        memory=options.max_memory,
        bubble=options.max_bubble,
        calibration=options.file_of("calibration"),
    )
    warn(found.warnings)
    show(options.json, found.to_json, budget_shown(found), options.csv)
    if not found.holds:
        raise Exit(1)
