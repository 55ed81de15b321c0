"""`stepsim noise`: how the time of a step spreads when its tasks vary at random."""

from functools import partial
from pathlib import Path

from stepsim.base.errors import OutputError
from stepsim.cli.declared import flag
from stepsim.cli.options import RunOptions, SetOption, StudyFiles, StyleOption, study_of, takes
from stepsim.cli.terminal import (
    CsvOption,
    JsonOption,
    WorkloadArgument,
    command_bar,
    figure,
    sweep_bar,
    warn,
)
from stepsim.show.figures.style import FigureStyle


@takes(RunOptions)
def noise_command(
    file: WorkloadArgument,
    options: RunOptions,
    task: float = flag("Coefficient of variation of every compute task.", default=0.02),
    communication: float = flag("Coefficient of variation of transfers.", default=0.0),
    rank: float = flag("Coefficient of variation between ranks.", default=0.0),
    stragglers: float = flag("Probability that a rank straggles in a step.", default=0.0),
    straggler_factor: float = flag("Factor on a straggler's compute.", default=1.3),
    samples: int = flag("Steps to draw.", default=1000),
    seed: int = flag("Equal seeds give equal samples.", default=0),
    axes: SetOption = (),
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: Path | None = figure("Draw the result"),
    style: StyleOption = FigureStyle.SCREEN,
) -> None:
    """Print how step times spread when task times vary at random."""
    from stepsim.explore.noise.draws import (
        NoiseDocument,
        NoiseModel,
        simulate_noise,
        sweep_noise,
    )
    from stepsim.views.studies import noise_shown, noise_sweep_shown, plot_noise

    files = StudyFiles(json=json, csv=csv, plot=plot, style=style)
    model = NoiseModel(
        task=task,
        communication=communication,
        rank=rank,
        straggler_probability=stragglers,
        straggler_factor=straggler_factor,
    )
    if axes:
        if plot:
            raise OutputError("--plot draws the steps of one job: expected no --set")
        study = study_of(file, options, axes)
        with sweep_bar() as bar:
            swept = sweep_noise(study, model=model, samples=samples, seed=seed, progress=bar)
        files.show_study(swept, noise_sweep_shown(swept))
        return
    job = options.inputs(file)
    with command_bar(f"drawing {samples} steps"):
        found = simulate_noise(job, model=model, samples=samples, seed=seed)
    warn(found.warnings)
    files.show_study(
        NoiseDocument.of(found),
        noise_shown(found),
        partial(plot_noise, found),
        {"step_time_ps": found.step_time_ps.tolist()},
    )
