"""Sweeps from Python: every combination of some axes, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Unpack
from weakref import finalize

from msgspec.structs import asdict

from stepsim.base.fields import checked
from stepsim.base.structs import Document, File, Noun
from stepsim.documents.table import Shown
from stepsim.explore.sweep import (
    Grid,
    Study,
    SweepProgress,
    SweepTable,
    axis_of,
    open_for_reading,
    swept,
)
from stepsim.face.described import takes_options
from stepsim.face.keywords import StepKeywords
from stepsim.face.viewed import Viewed
from stepsim.files.asked import read_inputs
from stepsim.files.sweep_document import SweepDocument
from stepsim.show.figures.style import FigureStyle
from stepsim.show.frames import Columns, Tables
from stepsim.views.studies import sweep_shown
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stepsim.network.topology.network import TopologyLike

# Scenarios whose parts take no more than a fifth of a second to compute and keep.
_MOST_IN_PARTS = 10_000

__all__ = ["SweepResult", "load_sweep", "sweep"]


class SweepResult(Viewed, Noun, weakref=True):
    """What the database of a sweep holds, and the ways to see it.

    A database that nobody named is deleted with this.
    """

    database: Path

    @property
    def progress(self) -> SweepProgress:
        """Scenarios: all, done, failed."""
        with self._opened() as found:
            return found.progress

    @contextmanager
    def _opened(self) -> Iterator[SweepTable]:
        with open_for_reading(self.database) as store:
            yield SweepTable(store=store)

    def _document(self) -> Document:
        with self._opened() as found:
            return SweepDocument.of(found)

    def _shown(self) -> list[Shown]:
        with self._opened() as found:
            return list(sweep_shown(found, kept=False))

    def _tables(self) -> Tables:
        return {"scenarios": self._scenarios}

    def _scenarios(self) -> Columns:
        with self._opened() as found:
            columns: dict[str, list[object]] = {name: [] for name in found.header}
            for piece in found.pieces():
                for name, values in zip(columns, piece, strict=True):
                    columns[name] += values
        return columns

    @checked
    def plot(
        self,
        path: File | None = None,
        *,
        axes: Sequence[str] = (),
        kind: str = "time",
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> "Figure":
        """Step times over some axes; with a path also a .png, .svg or .pdf file.

        `kind` is time, bubble or breakdown; the last needs a sweep with `breakdown`.
        Raises SweepError for axes and kinds that cannot be drawn, OutputError.
        """
        from stepsim.views.sweep import plot_sweep

        with self._opened() as found:
            return plot_sweep(found, path, names=axes, kind=kind, style=style)

    @checked
    def write_report(self, path: File, *, axes: Sequence[str] = ()) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.views.pages import sweep_page

        with self._opened() as found:
            sweep_page(found, axes).write(path)


@takes_options
@checked
def sweep(
    workload: Workload | Model | File,
    topology: "TopologyLike | None" = None,
    *,
    axes: Mapping[str, object],
    database: File | None = None,
    resume: bool = False,
    force: bool = False,
    breakdown: bool | None = None,
    jobs: int | None = None,
    **options: Unpack[StepKeywords],
) -> SweepResult:
    """Simulate every combination of the values of some axes; `options` are those of `simulate`.

    An axis is an option of `simulate` or a number of the topology. Its values are a list or a
    text, e.g. `{"schedule": ["1f1b", "zb-h1"], "fabric.bandwidth": "100..800 Gbps:8"}`. Results go
    to a `database` that lasts if one is named: `resume` continues it, `force` begins anew. With
    `breakdown` the parts of each step are kept, without it those of up to 10,000. `jobs` are local
    processes, as many as are useful without it. Raises SweepError for axes that there are not, and
    where no scenario can run.
    """
    job = read_inputs(workload, topology, options)
    grid = Grid(axes=tuple(axis_of(name, values) for name, values in axes.items()))
    study = Study(
        **asdict(job),
        grid=grid,
        breakdown=grid.size <= _MOST_IN_PARTS if breakdown is None else breakdown,
        own_machines=topology is None,
    )
    with ExitStack() as at_end:
        path = Path(database) if database else _unnamed(at_end)
        with swept(study, path, resume=resume, force=force, jobs=jobs) as table:
            table.refuse_if_all_failed()
        found = SweepResult(database=path)
        finalize(found, at_end.pop_all().close)
    return found


def _unnamed(at_end: ExitStack) -> Path:
    """A database in a folder of its own, which is removed at the end."""
    folder = mkdtemp(prefix="stepsim-")
    at_end.callback(rmtree, folder, ignore_errors=True)
    return Path(folder) / "sweep.sqlite"


@checked
def load_sweep(database: File) -> SweepResult:
    """What the database of a sweep holds, also of one that is running; raises SweepError."""
    with open_for_reading(Path(database)):
        return SweepResult(database=Path(database))
