"""A search of plans, a plan against its budget, and a figure of what no other plan beats."""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stepsim.base.units import format_size_bytes, format_time_ps, npu_word, time_unit
from stepsim.documents.table import AS_IS, TEXT, Sheet, Table, paths, table_of
from stepsim.explore.plan.asked import PlanDocument, PlanEntry
from stepsim.explore.plan.search import PlanSearch, SearchedPlan
from stepsim.files.models.launch import LaunchForm
from stepsim.options import OPTIONS
from stepsim.show.figures.drawing import drawn, head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PATH, series_colour
from stepsim.step.plans import HOW_RUN, SHORT_NAMES, plan_words
from stepsim.views.step import accuracy_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stepsim.explore.plan.budget import BudgetDocument


_DEGREES = ("npus", "tp", "cp", "pp", "dp", "ep", "expert_tp", "chunks", "microbatch_size")
_USUAL = {1, "none", "1f1b"}
# Columns of plans that are judged by drawn steps.
_DRAWN = paths("drawn = drawn.mean_ps, drawn.p90_ps, drawn.waiting")
_HEADS = {**SHORT_NAMES, "npus": "gpus", "order": "schedule"}


def plans_shown(found: PlanDocument, *, full: bool = False) -> Sheet:
    """The best plan, those behind it, what was searched, and how to run the first.

    With `full` also the model in the words of what it is launched with.
    """
    yield from _best(found)
    yield from _judged(found)
    yield _plans_table(found)
    yield (
        ("limited by", found.binds),
        ("searched", _searched(found)),
        ("held fixed", ", ".join(f"{name} {value}" for name, value in found.held.items())),
    )
    if found.equal_plans > 1:
        yield (
            f"too close to call: the first {found.equal_plans} "
            f"(less than {found.known_apart:.0%} apart)"
        )
    if found.throughput:
        yield accuracy_pairs(found.throughput)
    yield from _launch(found)
    if full and found.model_arguments:
        yield " ".join(found.model_arguments)


def _best(found: PlanDocument) -> Iterator[str]:
    """What was asked, and the best plan with what it reaches."""
    best = found.plans[0]
    word = npu_word(found.device)
    yield (
        f"{found.model} on {best.npus:,} {found.device} ({found.topology})   "
        f"batch {found.global_batch:,} x {found.sequence:,} tokens"
    )
    full = " of full sequences" if best.drawn else ""
    yield (
        f"best: {plan_words(best.plan)}   {format_time_ps(best.step_time_ps)} per step{full}   "
        f"{best.tokens_per_s_per_npu:,.0f} tokens/s per {word}   MFU {best.mfu:.1%}   memory "
        f"{format_size_bytes(best.memory_bytes)} ({best.memory_share:.0%})"
    )


def _judged(found: PlanDocument) -> Iterator[str]:
    """That plans are judged by drawn documents, and what full sequences would say."""
    best = found.plans[0].drawn
    if best is None:
        return
    yield (
        f"judged by documents from {found.lengths}, packer {found.packer}: mean step "
        f"{format_time_ps(best.mean_ps)}, {format_time_ps(best.p90_ps)} in one of ten, "
        f"{best.waiting:.1%} of it waiting for the longest microbatches"
    )
    if found.equal_lengths:
        yield f"full sequences would set another plan first: {found.equal_lengths}"
    else:
        yield "full sequences of one document would set the same plan first"


def _searched(found: PlanDocument) -> str:
    """How many plans there are, and what became of them."""
    fates = {
        "do not fit": found.too_large,
        "slower by a lower bound": found.ruled_out,
        "simulated": found.simulated,
        "estimated slower": found.not_run,
    }
    counted = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)
    return f"{found.looked_at:,} plans: {counted}"


def _launch(document: PlanDocument) -> Iterator[str]:
    """The best plan as its framework is launched with it, and why there is no such form."""
    label = LaunchForm(document.launch_form).label
    titan = document.launch_form == LaunchForm.TORCHTITAN
    if document.environment and not titan:
        yield document.environment
    if document.launch:
        text = ("\n" if titan else " ").join(document.launch)
        yield f"{label}:{chr(10) if titan else ' '}{text}"
    elif document.launch_form == LaunchForm.NONE:
        options = document.plans[0].options.items()
        flags = shlex.join(word for name, text in options for word in OPTIONS[name].words(text))
        yield f"how {document.framework} is launched is not known here; stepsim simulate: {flags}"
    else:
        yield f"{label} cannot run it: {'; '.join(document.launch_refused)}"


def _plans_table(found: PlanDocument) -> Table:
    """A row per plan, the best first; degrees that all have as 1 are left out."""
    plans = found.plans
    names = (*_DEGREES, "order", "zero", "recompute", *HOW_RUN)
    told = [name for name in names if _is_told(plans, name)]
    uneven = any("layout" in plan.options for plan in plans)
    layout = AS_IS.of(lambda plan: plan.options.get("layout", "equal"))
    columns = {
        **{_HEADS.get(name, name): AS_IS.of(partial(_value_of, name=name)) for name in told},
        **({"layout": layout} if uneven else {}),
        **(_DRAWN if plans[0].drawn else {}),
        **paths(
            "step = step_time_ps, tokens/s/gpu = tokens_per_s_per_npu:,.0f, MFU = mfu, "
            "memory_bytes, of it = memory_share, bubble = bubble_fraction, "
            "exposed = exposed_ps/step_time_ps, compared with the first = why"
        ),
    }
    return table_of("best plans, one for each set of degrees", plans, columns)


def _is_told(plans: tuple[PlanEntry, ...], name: str) -> bool:
    """Whether plans differ in something, or all have another than the usual."""
    if name == "expert_tp" and not _is_told(plans, "ep"):
        return False
    values = {getattr(each.plan, name) for each in plans}
    is_always = name in ("npus", "tp", "pp", "dp")
    return is_always or len(values) > 1 or (name not in HOW_RUN and not values <= _USUAL)


def _value_of(entry: PlanEntry, name: str) -> str | int:
    """Whether a plan has something, or how much, or which of its kinds."""
    value: str | int = getattr(entry.plan, name)
    return ("off", "on")[value] if isinstance(value, bool) else value


def budget_shown(found: "BudgetDocument") -> Sheet:
    """A plan against its budget, a row per number."""
    yield table_of(
        found.plan,
        found.lines,
        {
            "": TEXT.of("what"),
            "budget": TEXT.of(lambda line: line.budget or "-"),
            **paths("predicted"),
            "verdict": TEXT.of(lambda line: "holds" if line.holds else "exceeded"),
        },
    )


_GIB = 2**30
_MOST_LABELS = 6


@drawn
def plot_plans(found: PlanSearch, style: FigureStyle) -> "Figure":
    """The simulated plans of a search: against GPUs where sizes differ, else memory."""
    sizes = sorted({each.plan.npus for each in found.plans})
    several, (scale, unit) = len(sizes) > 1, time_unit(max(each.judged_ps for each in found.plans))
    figure = style.figure(3.0 if style.narrow else 3.6)
    axes = figure.subplots()
    x, y = zip(*(_place(each, scale, several=several) for each in found.plans), strict=True)
    axes.scatter(x, y, s=12, color=series_colour(0), linewidths=0, label="simulated plan")
    front = plan_front(found.plans, several=several)
    edge = [_place(each, scale, several=several) for each in front]
    across, steps = zip(*edge, strict=True)
    axes.step(across, steps, where="post", color=PATH, linewidth=0.8, label="Pareto front")
    for each, place in list(zip(front, edge, strict=True))[:_MOST_LABELS]:
        axes.annotate(
            plan_words(each.plan),
            place,
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=0.7 * style.font_pt,
        )
    if several:
        axes.set_xscale("log", base=2)
    axes.set_xlabel("GPUs" if several else "memory of the fullest rank (GiB)")
    axes.set_ylabel(f"step time ({unit})")
    axes.grid()
    gpus = f"{sizes[0]:,}" if not several else f"{sizes[0]:,} to {sizes[-1]:,}"
    name = found.plans[0].run.workload
    head(axes, style, f"{name} on {gpus} GPUs: {len(found.plans)} simulated plans")
    legend(figure, style)
    return figure


def plan_front(plans: Sequence[SearchedPlan], *, several: bool) -> list[SearchedPlan]:
    """Plans that no other beats in both, by GPUs (`several` sizes) or memory, ascending."""
    front: list[SearchedPlan] = []
    for each in sorted(plans, key=partial(_place, several=several)):
        if not front or each.judged_ps < front[-1].judged_ps:
            front.append(each)
    return front


def _place(plan: SearchedPlan, scale: int = 1, *, several: bool) -> tuple[float, float]:
    """Where a plan stands: its GPUs or its memory, and its step in a unit of so many ps."""
    across = plan.plan.npus if several else plan.memory_bytes / _GIB
    return across, plan.judged_ps / scale
