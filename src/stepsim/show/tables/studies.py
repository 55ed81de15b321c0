"""What one per cent of everything is worth, and how noise spreads the step time."""

from collections.abc import Iterator, Mapping

from stepsim.base.units import format_time_ps
from stepsim.explore.noise.draws import NoiseResult
from stepsim.explore.noise.sweeps import NoiseSweep
from stepsim.explore.sensitivity.analysis import Sensitivity, Slope
from stepsim.explore.sensitivity.names import describe, show_value
from stepsim.show.tables.model import ERROR, TEXT, TIME, Shown, Table, as_number

_PERCENTILES = (50, 95, 99)
_SWEPT_PERCENTILES = (5, 50, 95)
_WORTH = as_number(".3%")


def sensitivity_shown(found: Sensitivity) -> Iterator[Shown]:
    """What one per cent of each parameter is worth, and where the critical path changes."""
    yield (("step time", format_time_ps(found.step_time_ps)),)
    yield worth_table({"": found})
    yield "derivative: of the step time, per 100 % of the parameter, on the critical path"
    yield from turns(found)
    yield from (f"note: {note}" for note in found.notes)


def worth_table(runs: Mapping[str, Sensitivity]) -> Table:
    """What one per cent saves in each of some runs; of one run, the derivatives too."""
    slopes = {slope.name: slope for found in runs.values() for slope in found.slopes}
    gains = [{slope.name: slope.gain for slope in found.slopes} for found in runs.values()]
    rows = sorted(slopes.values(), key=lambda s: -max(each.get(s.name, 0.0) for each in gains))
    saved = [f"{title} saves" if title else "saves" for title in runs]
    return Table(
        caption="what one per cent is worth, of the step time",
        columns={
            "change": TEXT,
            "now": as_number(""),
            **dict.fromkeys(saved, _WORTH),
            **({"derivative": as_number("+.3%")} if len(runs) == 1 else {}),
        },
        rows=tuple(
            (
                describe(slope),
                show_value(slope),
                *(each.get(slope.name) for each in gains),
                *([_derivative(slope)] if len(runs) == 1 else []),
            )
            for slope in rows
        ),
    )


def _derivative(slope: Slope) -> float | str:
    """A star marks where the critical path changes within the step."""
    return f"{slope.elasticity:+.3%} *" if slope.one_sided else slope.elasticity


def turns(found: Sensitivity) -> Iterator[str]:
    """Where the critical path changes within a step to either side."""
    for slope in found.slopes:
        if slope.one_sided and found.step_time_ps:
            below, above = (
                each * slope.value / found.step_time_ps for each in (slope.below, slope.above)
            )
            yield (
                f"* {describe(slope)}: the critical path changes; {below:+.3%} of the step per "
                f"100 % below, {above:+.3%} above"
            )


def noise_shown(found: NoiseResult) -> Iterator[Shown]:
    """The distribution of step times beside the planned one."""
    planned = found.planned_ps
    times = {"without noise": float(planned), "mean": found.mean_ps}
    times |= {f"p{percent}": found.percentile_ps(percent) for percent in _PERCENTILES}
    yield Table(
        caption=f"{len(found.step_time_ps)} samples, seed {found.seed}",
        columns={"": TEXT, "step time": TIME, "over planned": ERROR},
        rows=tuple(
            (name, time, time / planned - 1 if planned else "") for name, time in times.items()
        ),
    )
    if not found.every_rank:
        yield (
            "note: one draw per class of ranks that behave alike, for the job is too large: a "
            "lower bound, since the slowest of many ranks is slower than one"
        )


def noise_sweep_shown(found: NoiseSweep) -> Iterator[Shown]:
    """A row per scenario: step time without noise, and percentiles with it."""
    axes = {axis.name: TEXT for axis in found.grid.axes}
    names = ("without noise", *(f"p{percent}" for percent in _SWEPT_PERCENTILES))
    yield Table(
        caption=f"{found.samples} samples each, seed {found.seed}",
        columns={**axes, **dict.fromkeys(names, TIME)},
        rows=tuple(
            (*(found.grid.values(i)[name] for name in axes), *_noisy(each))
            for i, each in enumerate(found.scenarios)
        ),
    )
    if any(not each.every_rank for each in found.results):
        yield (
            "note: one draw per class of ranks that behave alike where jobs are too large: a lower "
            "bound, since the slowest of many ranks is slower than one"
        )
    for i, each in enumerate(found.scenarios):
        if isinstance(each, str):
            shown = ", ".join(f"{name}={text}" for name, text in found.grid.values(i).items())
            yield f"failed, {shown}: {each}"
            return


def _noisy(each: NoiseResult | str) -> tuple[float | str, ...]:
    if isinstance(each, str):
        return "failed", *([""] * len(_SWEPT_PERCENTILES))
    return each.planned_ps, *map(each.percentile_ps, _SWEPT_PERCENTILES)
