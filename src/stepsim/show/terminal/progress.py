"""A progress bar on stderr for runs that take over a second."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stepsim.base.units import format_time_ps

_SHOWN_AFTER_S = 1.0


@contextmanager
def progress_bar(
    text: str = "simulating", *, enabled: bool = True
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function to call with (tasks ended, all tasks), None where nobody watches."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from threading import Timer

    from rich.console import Console
    from rich.progress import Progress

    began = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, visible=False, total=None)

        def update(ended: int, total: int) -> None:
            visible = time.monotonic() - began > _SHOWN_AFTER_S
            bar.update(task, completed=ended, total=total, visible=visible)

        # what is done before the first task, or without events, shows that it goes on too
        timer = Timer(_SHOWN_AFTER_S, lambda: bar.update(task, visible=True))
        timer.daemon = True
        timer.start()
        try:
            yield update
        finally:
            timer.cancel()


@contextmanager
def working(text: str, *, enabled: bool = True) -> Iterator[None]:
    """Show on stderr that something goes on, once it has taken a second."""
    if not (enabled and sys.stderr.isatty()):
        yield
        return
    from threading import Timer

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None, visible=False)
        timer = Timer(_SHOWN_AFTER_S, lambda: bar.update(task, visible=True))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def sweep_bar(*, enabled: bool = True) -> Iterator[Callable[[int, int, int], None] | None]:
    """Yield a function to call with (scenarios done, failed, all), None where nobody watches.

    The bar shows the rate since the first call and the time that remains at that rate.
    """
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, failed="", rate="")

        def update(done: int, failed: int, total: int) -> None:
            if bar.tasks[task].total is None:
                bar.reset(task, completed=done, total=total)
            speed = bar.tasks[task].finished_speed or bar.tasks[task].speed or 0.0
            bar.update(
                task,
                completed=done,
                total=total,
                failed=f"{failed} failed, " if failed else "",
                rate=f"{speed:,.1f}/s" if speed else "",
            )

        yield update


@contextmanager
def plan_bar(*, enabled: bool = True) -> Iterator[Callable[[int, int, int], None] | None]:
    """Yield a function to call with (plans simulated, plans to simulate, best step in ps).

    None where nobody watches.
    """
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("simulating plans"), BarColumn(), MofNCompleteColumn()
    best = TextColumn("{task.fields[best]}")
    with Progress(*columns, best, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, best="pricing all")

        def update(done: int, total: int, best_ps: int) -> None:
            bar.update(task, completed=done, total=total, best=f"best {format_time_ps(best_ps)}")

        yield update
