"""The command line itself, on small files; nothing is written.

Limits on the size of a job are lowered, so that large ones are refused and not run.
"""

import contextlib
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import seeds

from stepsim.base.errors import StepsimError

_OPTIONS = (
    *("--npus", "--pp", "--microbatches", "--global-batch", "--microbatch-size", "--topology"),
    *("--compute-scale", "--schedule", "--chunks", "--slow", "--expert-load", "--algorithm"),
    *("--host-overhead", "--contention", "--kind", "--size", "--ranks", "--rank-order", "--p2p"),
    *("--stage-rows", "--dp-bucket", "--activation-size", "--fused-factor", "--group-size"),
    *("--memory-limit", "--samples", "--seed", "--task", "--rank", "--stragglers", "--schedules"),
    *("--dp-overlap", "--strict", "-q"),
)
COMMANDS = (
    "simulate W --topology T --microbatches 4 --schedule gpipe --slow 0:1.5 -q",
    "simulate W --npus 8 --pp 2 --microbatches 4 --schedule interleaved:2 --contention fair",
    "simulate W --npus 4 --global-batch 16 --microbatch-size 2 --compute-scale forward=0.5",
    "simulate W --host-overhead 10us --dp-overlap --dp-bucket 1MB",
    "simulate W --rank-order tp-pp-dp --p2p eager --stage-rows every --activation-size 2GiB",
    "collective --kind all_reduce --size 8..1GiB:x16 --ranks 0-7,16 --algorithm ring,nvls",
    "collective --kind send_recv --size 0 --ranks 0,1",
    "compare W --schedules 1f1b,gpipe --pp 2 --npus 2 --microbatches 4",
    "noise W --samples 50 --seed 1 --task 0.02 --rank 0.1 --stragglers 0.1",
    "simulate W --sensitivity --npus 2",
    "inspect W --npus 8",
    "inspect T",
)


def run_command(data: bytes, folder: Path) -> None:
    """Run a command; raises StepsimError where it is refused."""
    arguments = data.decode("utf-8", "surrogateescape").split(" ")
    if any(word.startswith("-") and word not in _OPTIONS for word in arguments):
        return
    files = {"W": folder / "w.txt", "T": folder / "t.toml"}
    files["W"].write_bytes(seeds.shortened(seeds.SMALL_WORKLOAD))
    files["T"].write_text(seeds.EXPLICIT)
    words = [str(files.get(word, word)) for word in arguments]
    printed = io.StringIO()
    try:
        with (
            _small_jobs(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            _command().main(words)
    except SystemExit as end:
        if end.code == 2:
            raise StepsimError(printed.getvalue()) from None
        if end.code:
            raise RuntimeError(f"exit code {end.code}") from None
    assert "\x1b" not in printed.getvalue(), printed.getvalue()


@cache
def _command() -> Any:
    from stepsim.cli.root import make_app

    return make_app()


@contextlib.contextmanager
def _small_jobs() -> Iterator[None]:
    """Lower what a job may have."""
    from stepsim.network import one_collective as collective_probe
    from stepsim.parallel.schedules import base as schedules
    from stepsim.step import job

    counts = dict.fromkeys(("microbatch_size", "microbatches"), 256)
    sizes = {"npus": 1024, "pp": 1024, "global_batch": 1024 * 256}
    limits: list[tuple[Any, str, Any]]
    limits = [
        (job, "MAX_NPUS", 1024),
        (job, "_MOST", {**job._MOST, **counts, **sizes}),
    ]
    limits += [(collective_probe, "MAX_NPUS", 1024), (schedules, "_MAX_FORWARDS", 4096)]
    kept = [(module, name, getattr(module, name)) for module, name, _ in limits]
    try:
        for module, name, value in limits:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
