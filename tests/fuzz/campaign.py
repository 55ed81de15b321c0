"""Runs mutated inputs over every reader and counts what happens to them.

    python tests/fuzz/campaign.py --inputs 1000000 --seed 0

An input is told by the seed and its number, so that every run makes the same ones. Each may
compute for 5 s and take 1 GiB more than the program itself. Outcomes are written chunk by chunk
into the folder of `--output`, with the inputs that failed: the same command continues where it was
stopped. `--again` runs only those that failed, `--replay FILE...` files named like theirs.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.mutators import mutate
from fuzz.targets import TARGETS, Target

from stepsim.base.errors import StepsimError

SECONDS = 5.0
MEMORY_BYTES = 1 << 30
CHUNK = 1000
OUTCOMES = ("accepted", "refused", "crash", "timeout", "memory")
_KEPT = 3  # inputs kept of failures that look the same
_STUCK_S = 120.0  # of real time, when nothing is computed either
_NAMES = list(TARGETS)
_SHARES = list(accumulate(target.weight for target in TARGETS.values()))


class OutOfTime(BaseException):
    """An input takes longer than it may."""


class Found(NamedTuple):
    """What became of an input; failures that look the same are of one `kind`."""

    number: int
    reader: str
    outcome: str
    kind: str = ""
    text: str = ""


def make_input(seed: int, number: int) -> tuple[str, bytes]:
    """The reader and the bytes of an input."""
    chance = Random(f"{seed}:{number}")
    name = chance.choices(_NAMES, cum_weights=_SHARES)[0]
    documents = TARGETS[name].seeds()
    return name, mutate(chance, chance.choice(documents), documents)


def outcome_of(target: Target, data: bytes, folder: Path) -> tuple[str, str, str]:
    """What becomes of an input: outcome, what tells failures apart, and the traceback."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        target.run(data, folder)
    except StepsimError as error:
        return _refused(error)
    except OutOfTime as error:
        return "timeout", _place(error), traceback.format_exc(limit=-12)
    except MemoryError as error:
        return "memory", _place(error), traceback.format_exc(limit=-12)
    except BaseException as error:
        return "crash", _place(error), traceback.format_exc(limit=-12)
    else:
        return "accepted", "", ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _refused(error: StepsimError) -> tuple[str, str, str]:
    """An error should be short, and one line that a terminal can show."""
    text = str(error)
    if len(text) > 1500 or not text.strip():
        return (
            "crash",
            f"message of {type(error).__name__}",
            f"{len(text)} characters: {text[:300]}",
        )
    return "refused", "", ""


def _place(error: BaseException) -> str:
    """Kind of an exception and the last line of the program that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/stepsim/" in frame.filename] or list(frames)
    last = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
    return f"{type(error).__name__} at {last}"


def run_span(seed: int, start: int, stop: int, results: Connection) -> None:
    """Run inputs `start` to `stop` in this process, which is one of its own; send each outcome."""
    _limit()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as name:
        folder = Path(name)
        for number in range(start, stop):
            reader, data = make_input(seed, number)
            _empty(folder)
            outcome, kind, text = outcome_of(TARGETS[reader], data, folder)
            results.send(Found(number, reader, outcome, kind, text))


def _limit() -> None:
    """Bound this process's memory, and let the timer raise."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _empty(folder: Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


@dataclass(kw_only=True)
class _Chunk:
    """Inputs that one process runs, and what it has found so far."""

    start: int
    stop: int
    found: list[Found] = field(default_factory=list)
    process: Any = None
    results: Any = None

    @property
    def next(self) -> int:
        """The input that is running or comes next."""
        return self.start + len(self.found)

    def begin(self, seed: int) -> None:
        """Run the inputs that are left in a new process."""
        context = multiprocessing.get_context("fork")
        self.results, sender = context.Pipe(duplex=False)
        self.process = context.Process(
            target=run_span, args=(seed, self.next, self.stop, sender), daemon=True
        )
        self.process.start()
        sender.close()

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.results.close()


@dataclass(kw_only=True)
class Campaign:
    """Inputs 0 to `inputs` of a seed; `folder` holds what is known of them."""

    inputs: int
    seed: int
    folder: Path
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"seed-{self.seed}.jsonl"
        self.done = set(self._known())

    def _known(self) -> Iterator[int]:
        """Chunks that were run before; a line that was cut off is run again."""
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry["stop"] <= self.inputs:
                    self._count(entry)
                    yield entry["start"]

    def run(self, jobs: int) -> None:
        """Run what is missing in `jobs` processes, each given one chunk at a time."""
        _warm_up()
        starts = (each for each in range(0, self.inputs, CHUNK) if each not in self.done)
        waiting = (_Chunk(start=s, stop=min(s + CHUNK, self.inputs)) for s in starts)
        active: dict[Any, _Chunk] = {}
        while True:
            for chunk in islice(waiting, jobs - len(active)):
                chunk.begin(self.seed)
                active[chunk.results] = chunk
            if not active:
                return
            ready = wait(active, timeout=_STUCK_S)
            for results in ready or list(active):
                chunk = active.pop(results)
                if self._goes_on(chunk, stuck=not ready):
                    active[chunk.results] = chunk

    def _goes_on(self, chunk: _Chunk, *, stuck: bool) -> bool:
        """Take what a process found; whether there is more to come of its chunk."""
        try:
            if stuck:
                raise EOFError
            chunk.found.append(chunk.results.recv())
        except EOFError:
            reader, _ = make_input(self.seed, chunk.next)
            outcome = "timeout" if stuck else "crash"
            chunk.found.append(Found(chunk.next, reader, outcome, "the process was lost"))
            chunk.end()
            if chunk.next < chunk.stop:
                chunk.begin(self.seed)
        if chunk.next < chunk.stop:
            return True
        chunk.end()
        self._store(chunk)
        return False

    def _store(self, chunk: _Chunk) -> None:
        counts = Counter((found.reader, found.outcome) for found in chunk.found)
        failures = [found for found in chunk.found if found.kind]
        entry = {
            "start": chunk.start,
            "stop": chunk.stop,
            "counts": [[*key, count] for key, count in sorted(counts.items())],
            "kinds": [f"{found.outcome}: {found.kind}" for found in failures],
            "failed": [found.number for found in failures],
        }
        for failure in failures:
            if self.kinds[f"{failure.outcome}: {failure.kind}"] < _KEPT:
                self._keep(failure)
        with self.log.open("a") as log:
            log.write(json.dumps(entry) + "\n")
        self._count(entry)
        done, failed = self.counts.total(), self.kinds.total()
        print(f"\r{done} of {self.inputs}, {failed} failed", end="", file=sys.stderr, flush=True)

    def _count(self, entry: dict[str, Any]) -> None:
        self.counts.update({(reader, outcome): n for reader, outcome, n in entry["counts"]})
        self.kinds.update(entry["kinds"])
        self.failed += entry["failed"]

    def _keep(self, failure: Found) -> None:
        """Write an input that failed, and what happened."""
        _, data = make_input(self.seed, failure.number)
        name = f"{failure.outcome}-{failure.reader}-{failure.number}"
        (self.folder / f"{name}.bin").write_bytes(data)
        text = f"{failure.kind}\n{failure.text}"
        (self.folder / f"{name}.txt").write_text(text, "utf-8", "backslashreplace")

    def again(self) -> int:
        """Run the inputs that failed once more and say what becomes of them; 1 if any fails."""
        counts: Counter[str] = Counter()
        for number in self.failed:
            chunk = _Chunk(start=number, stop=number + 1)
            chunk.begin(self.seed)
            found = None
            with contextlib.suppress(EOFError):
                found = chunk.results.recv() if chunk.results.poll(_STUCK_S) else None
            chunk.end()
            counts[found.outcome if found else "timeout"] += 1
            if found is None or found.kind:
                print(f"{number}: {found}")
        print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "none failed")
        return int(any(counts[outcome] for outcome in OUTCOMES[2:]))

    def print(self) -> None:
        """The table of readers and outcomes, as docs/robustness.md has it."""
        print("\n| reader | inputs | " + " | ".join(OUTCOMES) + " |")
        print("|---|" + "--:|" * (len(OUTCOMES) + 1))
        for name in (*TARGETS, "all"):
            readers = TARGETS if name == "all" else [name]
            found = [sum(self.counts[each, outcome] for each in readers) for outcome in OUTCOMES]
            shown = name if name == "all" else f"`{name}`"
            print(f"| {shown} | {sum(found)} | " + " | ".join(map(str, found)) + " |")
        for kind, count in self.kinds.most_common():
            print(f"{count} {kind}")


def _warm_up() -> None:
    """Load in this process what all others need."""
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS.values():
            for document in target.seeds():
                with contextlib.suppress(StepsimError):
                    target.run(document, Path(folder))


def replay(files: Sequence[Path]) -> int:
    """Give files to readers that their names tell, e.g. `crash-units-17.bin`; 1 if any fails.

    Prints a line per file: its name, what became of it, and of a failure what it looks like.
    """
    _limit()
    failed = False
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        for file in files:
            reader = next(name for name in TARGETS if f"-{name}-" in file.stem)
            outcome, kind, _ = outcome_of(TARGETS[reader], file.read_bytes(), Path(folder))
            failed |= bool(kind)
            print(file.name, outcome, kind)
    return int(failed)


def main() -> int:
    """Run a campaign; 1 where an input failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--again", action="store_true", help="only run again what failed, one by one"
    )
    parser.add_argument("--output", type=Path, default=Path("fuzz-results"))
    parser.add_argument("--replay", type=Path, nargs="+", default=[], metavar="FILE")
    chosen = parser.parse_args()
    if chosen.replay:
        return replay(chosen.replay)
    campaign = Campaign(inputs=chosen.inputs, seed=chosen.seed, folder=chosen.output)
    if chosen.again:
        return campaign.again()
    campaign.run(chosen.jobs)
    campaign.print()
    return int(bool(campaign.kinds))


if __name__ == "__main__":
    sys.exit(main())
