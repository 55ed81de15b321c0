"""Runs mutated inputs over every reader and counts what happens to them.

    python tests/fuzz/campaign.py --inputs 1000000 --seed 0

An input is told by the seed and its number, so that every run makes the same ones. Each may take
5 s and 1 GiB more than the program itself. Outcomes are written chunk by chunk into the folder of
`--output`, with the inputs that failed: the same command continues where it was stopped.
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
from itertools import accumulate
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.mutators import mutate
from fuzz.targets import TARGETS, Target

from stepsim.errors import StepsimError

SECONDS = 5.0
MEMORY_BYTES = 1 << 30
CHUNK = 1000
OUTCOMES = ("accepted", "refused", "crash", "timeout", "memory")
_KEPT = 3  # inputs kept of failures that look the same
_STUCK_S = 4 * SECONDS
_NAMES = list(TARGETS)
_SHARES = list(accumulate(target.weight for target in TARGETS.values()))


class OutOfTime(BaseException):  # noqa: N818 - no error of the program, and caught by no handler
    """An input takes longer than it may."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An input that ended otherwise than it should; `kind` tells failures apart."""

    number: int
    reader: str
    outcome: str
    kind: str
    text: str


@dataclass(kw_only=True)
class Tally:
    """Inputs by reader and outcome, and those that failed."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


def make_input(seed: int, number: int) -> tuple[str, bytes]:
    """The reader and the bytes of an input."""
    chance = Random(f"{seed}:{number}")
    name = chance.choices(_NAMES, cum_weights=_SHARES)[0]
    documents = TARGETS[name].seeds()
    return name, mutate(chance, chance.choice(documents), documents)


def outcome_of(target: Target, data: bytes, folder: Path) -> tuple[str, str, str]:
    """What becomes of an input: outcome, what tells failures apart, and the traceback."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
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
        signal.setitimer(signal.ITIMER_REAL, 0)


def _refused(error: StepsimError) -> tuple[str, str, str]:
    """An error should be short, and one line that a terminal can show."""
    text = str(error)
    if len(text) > 1500 or not text.strip():
        return "crash", f"message of {type(error).__name__}", f"{len(text)} characters: {text[:300]}"
    return "refused", "", ""


def _place(error: BaseException) -> str:
    """Kind of an exception and the last line of the program that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/stepsim/" in frame.filename] or list(frames)
    last = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
    return f"{type(error).__name__} at {last}"


def run_span(seed: int, start: int, stop: int, at: "Synchronized[int]", results: Any) -> None:
    """Run inputs `start` to `stop` in this process, which is one of its own, and send the tally."""
    _limit()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_fast_folder()))
    tally = Tally()
    try:
        for number in range(start, stop):
            at.value = number
            name, data = make_input(seed, number)
            _empty(folder)
            outcome, kind, text = outcome_of(TARGETS[name], data, folder)
            tally.counts[name, outcome] += 1
            if kind:
                tally.failures.append(
                    Failure(number=number, reader=name, outcome=outcome, kind=kind, text=text)
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        results.send(tally)


def _limit() -> None:
    """Bound this process's memory, and let the timer raise."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _empty(folder: Path) -> None:
    for each in os.scandir(folder):
        if each.is_dir():
            shutil.rmtree(each.path)
        else:
            os.unlink(each.path)


@dataclass(kw_only=True)
class Campaign:
    """Inputs 0 to `inputs` of a seed; `folder` holds what is known of them."""

    inputs: int
    seed: int
    folder: Path
    tally: Tally = field(default_factory=Tally)

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
                    self._take(_tally(entry))
                    yield entry["start"]

    def run(self, jobs: int) -> None:
        """Run what is missing in `jobs` processes, each given one chunk at a time."""
        context = multiprocessing.get_context("fork")
        for target in TARGETS.values():
            target.seeds()
        spans = [
            (start, min(start + CHUNK, self.inputs))
            for start in range(0, self.inputs, CHUNK)
            if start not in self.done
        ]
        with multiprocessing.pool.ThreadPool(jobs) as threads:
            for start, stop, tally in threads.imap_unordered(
                lambda span: self._span(context, *span), spans
            ):
                self._store(start, stop, tally)

    def _span(self, context: Any, start: int, stop: int) -> tuple[int, int, Tally]:
        """A chunk in a process of its own; after an input that kills it, the rest in another."""
        whole, here = Tally(), start
        while here < stop:
            at = context.Value("q", here)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=run_span, args=(self.seed, here, stop, at, sender), daemon=True
            )
            process.start()
            sender.close()
            tally = _received(receiver, at)
            process.kill()
            process.join()
            if tally is not None and sum(tally.counts.values()) == stop - here:
                _add(whole, tally)
                break
            for number in range(here, at.value):
                pass
            _add(whole, self._killed(at.value))
            _add(whole, self._again(context, here, at.value))
            here = at.value + 1
        return start, stop, whole

    def _again(self, context: Any, start: int, stop: int) -> Tally:
        """The inputs before one that killed its process, whose tally died with it."""
        return self._span(context, start, stop)[2] if start < stop else Tally()

    def _killed(self, number: int) -> Tally:
        """An input that no limit could stop, or that ended its process."""
        name, _ = make_input(self.seed, number)
        failure = Failure(
            number=number, reader=name, outcome="timeout", kind="process lost", text=""
        )
        return Tally(counts=Counter({(name, "timeout"): 1}), failures=[failure])

    def _store(self, start: int, stop: int, tally: Tally) -> None:
        entry = {
            "start": start,
            "stop": stop,
            "counts": [[*key, count] for key, count in sorted(tally.counts.items())],
            "failures": [
                [f.number, f.reader, f.outcome, f.kind, f.text] for f in tally.failures
            ],
        }
        with self.log.open("a") as log:
            log.write(json.dumps(entry) + "\n")
        self._take(tally)
        self._keep(tally.failures)
        done = sum(self.tally.counts.values())
        print(f"\r{done} of {self.inputs}, {len(self.tally.failures)} failed", end="", flush=True)

    def _take(self, tally: Tally) -> None:
        _add(self.tally, tally)

    def _keep(self, failures: Sequence[Failure]) -> None:
        """Write the first inputs of each kind of failure, with what happened."""
        kinds = Counter(failure.kind for failure in self.tally.failures)
        for failure in failures:
            if kinds[failure.kind] > _KEPT and failure.kind != "process lost":
                continue
            name, data = make_input(self.seed, failure.number)
            place = self.folder / f"{failure.outcome}-{name}-{failure.number}"
            place.with_suffix(".bin").write_bytes(data)
            place.with_suffix(".txt").write_text(f"{failure.kind}\n{failure.text}", "utf-8", "replace")

    def print(self) -> None:
        """The table of readers and outcomes, as docs/robustness.md has it."""
        print("\n\n| reader | inputs | " + " | ".join(OUTCOMES) + " |")
        print("|---|" + "---|" * (len(OUTCOMES) + 1))
        for name in (*_NAMES, "all"):
            found = [
                sum(n for (reader, o), n in self.tally.counts.items()
                    if o == outcome and name in (reader, "all"))
                for outcome in OUTCOMES
            ]
            print(f"| {name} | {sum(found)} | " + " | ".join(map(str, found)) + " |")
        for kind, count in Counter(f"{f.outcome}: {f.kind}" for f in self.tally.failures).most_common():
            print(f"{count} {kind}")


def _received(receiver: Any, at: "Synchronized[int]") -> Tally | None:
    """The tally of a process; None if it died, or an input of it is stuck in a library."""
    seen = -1
    while not receiver.poll(_STUCK_S):
        if at.value == seen:
            return None
        seen = at.value
    try:
        tally: Tally = receiver.recv()
    except EOFError:
        return None
    return tally


def _tally(entry: dict[str, Any]) -> Tally:
    counts = Counter({(reader, outcome): n for reader, outcome, n in entry["counts"]})
    names = ("number", "reader", "outcome", "kind", "text")
    failures = [Failure(**dict(zip(names, each, strict=True))) for each in entry["failures"]]
    return Tally(counts=counts, failures=failures)


def _add(whole: Tally, part: Tally) -> None:
    whole.counts += part.counts
    whole.failures += part.failures


def main() -> int:
    """Run a campaign; 1 where an input failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("fuzz-results"))
    chosen = parser.parse_args()
    campaign = Campaign(inputs=chosen.inputs, seed=chosen.seed, folder=chosen.output)
    campaign.run(chosen.jobs)
    campaign.print()
    return int(bool(campaign.tally.failures))


if __name__ == "__main__":
    sys.exit(main())
