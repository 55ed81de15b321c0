"""`stepsim improve`, and profiles given to `simulate`: their tables and views."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepsim.base.errors import PlanError
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import QuietOptions, SimulateOptions, takes
from stepsim.cli.terminal import (
    FOLDER,
    PAGE,
    CsvOption,
    FullOption,
    JsonOption,
    command_bar,
    command_line,
    show,
    warn,
    write_rows,
)

if TYPE_CHECKING:
    from stepsim.explain.stragglers import Stragglers
    from stepsim.measured.profile.events import Profile


@takes(QuietOptions)
def improve_command(
    run: Annotated[
        Path,
        argument("RUN", "A profile, or a folder with the traces of all ranks."),
    ],
    apply: str | None = flag("Write the run with this change, by its name."),
    output: Path | None = flag(
        "Where --apply writes: a folder for Chakra traces.", "--output", "-o", writes=FOLDER
    ),
    report: Path | None = flag("Write a page, one HTML file.", writes=PAGE),
    node_size: int | None = flag("Ranks per node, where the run does not tell."),
    full: FullOption = False,
    json: JsonOption = None,
    csv: CsvOption = None,
) -> None:
    """Rank changes of a profiled run by the step time they save."""
    from stepsim.files.traces.chakra_write import write_chakra
    from stepsim.runs.improve import change_profile, improve_profile
    from stepsim.views.profiles import improvements_shown

    if (apply is None) != (output is None):
        raise PlanError("expected --apply NAME and --output FILE together")
    profile = read_with_progress(run).on_nodes(node_size)
    warn(profile.warnings)
    if apply and output:
        write_chakra(change_profile(profile, apply), output)
    found = improve_profile(profile)
    if report:
        from stepsim.views.pages import improvements_page

        improvements_page(found, profile).write(report, command_line())
    write_rows(csv, found)
    show(json, found.to_json, improvements_shown(found, profile, full=full))


def simulate_profile(path: Path, options: SimulateOptions) -> None:
    """Replay every step of a profile, and show what was recorded."""
    from stepsim.explain.profile_document import ProfileDocument
    from stepsim.views.profiles import PROFILE_TABLES, profile_answer, profile_tables

    options.check_tables(PROFILE_TABLES)
    found = read_stragglers(path)
    options.write_profile(found)
    options.show_answer(
        profile_answer(found),
        lambda: ProfileDocument.of(found).to_json(),
        options.chosen(lambda: profile_tables(found)),
    )


def recorded_forms(file: Path) -> tuple[bool, bool]:
    """Whether a file is a profile, and a measured run; a model by name or folder is neither."""
    from stepsim.files.load import is_model_at_sight
    from stepsim.files.traces.forms import is_measured, is_profile

    if is_model_at_sight(file):
        return False, False
    return is_profile(file), is_measured(file)


def read_with_progress(path: Path) -> "Profile":
    """Read a profile; a bar on stderr counts the files of a folder."""
    from stepsim.files.measured import load_profile

    with command_bar("reading traces") as progress:
        return load_profile(path, progress=progress)


def read_stragglers(path: Path) -> "Stragglers":
    """What slows the steps of a profile that is read, once it is said what is wrong with it."""
    from stepsim.explain.stragglers import find_stragglers

    profile = read_with_progress(path)
    warn(profile.warnings)
    return find_stragglers(profile)
