"""`stepsim compare` and `stepsim diff`: several schedules, two results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepsim.base.option import Panel
from stepsim.cli.batches import BESIDE_LENGTHS, show_batches
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import (
    ON_COMMAND_LINE,
    SCHEDULES,
    ViewOptions,
    refuse_beside,
    takes,
    write_traces,
)
from stepsim.cli.terminal import (
    FOLDER,
    CsvOption,
    WorkloadArgument,
    command_bar,
    command_line,
    show_tables,
    step_json,
    write_rows,
)

if TYPE_CHECKING:
    from stepsim.step.compare import ComparedSchedules


@dataclass(frozen=True, kw_only=True)
class _CompareOptions(ViewOptions):
    """What `compare` takes beside the options of a step."""

    schedules: str | None = flag(
        "Names or CSV files, separated by commas, e.g. 1f1b,interleaved:2.",
        "--schedules",
        "--schedule",
        shown="1f1b, interleaved by chunks that divide the layers, zb-h1, zb-v, dualpipe-v",
        offers=SCHEDULES,
        panel=Panel.PIPELINE,
    )
    results: Path | None = flag(
        "Write what simulate --json writes, a file per schedule: a folder.", writes=FOLDER
    )
    chakra: Path | None = flag(
        "Write Chakra traces, one folder per schedule: a folder.", writes=FOLDER
    )
    kineto: Path | None = flag(
        "Write PyTorch's traces, one folder per schedule: a folder.", writes=FOLDER
    )


@takes(_CompareOptions, ON_COMMAND_LINE - {"schedule", "chunks"})
def compare_command(file: WorkloadArgument, options: _CompareOptions) -> None:
    """Compare pipeline schedules, or packers of documents.

    Schedules run a model or a workload; with --lengths, documents of a model are packed.
    """
    if options.lengths is not None:
        refuse_beside("--lengths", BESIDE_LENGTHS - {"schedule", "chunks"})
        show_batches(file, options)
        return
    options.check_lengths()
    from stepsim.files.asked import read_schedules
    from stepsim.step.compare import ComparisonDocument, compare_schedules
    from stepsim.views.comparison import (
        COMPARISON_TABLES,
        comparison_answer,
        comparison_shown,
        comparison_tables,
    )

    options.check()
    options.check_tables(COMPARISON_TABLES)
    job = options.inputs(file)
    named = None if options.schedules is None else read_schedules(options.schedules.split(","))
    with command_bar() as progress:
        comparison = compare_schedules(job, named, progress, weigh=options.results is not None)
    reports = [step.report for _, step in comparison.valid]
    options.write_trace(comparison.valid)
    _write_each(comparison, str(file), options)
    options.draw(step for _, step in comparison.valid)
    if options.report:
        from stepsim.views.pages import comparison_page

        with command_bar("writing the page"):
            comparison_page(comparison, job).write(options.report, command_line())
    document = ComparisonDocument.of(comparison)
    write_rows(options.csv, document)
    tables = options.chosen(lambda: comparison_tables(document))
    shown = chain(comparison_shown(document), tables)
    options.show_answer(comparison_answer(document), document.to_json, shown, reports)


def _write_each(comparison: "ComparedSchedules", source: str, options: _CompareOptions) -> None:
    """Write what `simulate` writes of one schedule, for each that runs, under its name.

    `results` gets a JSON file per schedule, `chakra` and `kineto` a folder of traces per schedule.
    Raises PlanError for a step of too many tasks, OutputError where a folder cannot be written.
    """
    from stepsim.base.writing import write_folder

    names = _file_names([name for name, _ in comparison.valid])
    steps = [step for _, step in comparison.valid]
    if options.results:
        documents = map(step_json, steps)
        files = zip((f"{name}.json" for name in names), documents, strict=True)
        write_folder(options.results, files)
    chakra, kineto = options.chakra, options.kineto
    if chakra or kineto:
        for name, step in zip(names, steps, strict=True):
            write_traces(step, source, chakra and chakra / name, kineto and kineto / name)


def _file_names(names: Sequence[str]) -> list[str]:
    """Names of schedules as files bear them: `interleaved-2`; one that stands twice is numbered."""
    taken: list[str] = []
    for name in names:
        plain = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "schedule"
        same = sum(other == plain or other.startswith(f"{plain}--") for other in taken)
        taken.append(f"{plain}--{same + 1}" if same else plain)
    return taken


@takes()
def diff_command(
    a: Annotated[
        Path,
        argument("A.json", "What --json of simulate or compare wrote."),
    ],
    b: Annotated[
        Path | None,
        argument(
            "[B.json]",
            "The other; without it, the schedules of a comparison are held against its first.",
        ),
    ] = None,
    csv: CsvOption = None,
) -> None:
    """Explain the difference of two step times.

    It is divided among settings, components, stages and links.
    """
    from stepsim.step.diff_files import diff_files
    from stepsim.views.comparison import diffs_shown

    show_tables(diffs_shown(diff_files(a, b)), csv)
