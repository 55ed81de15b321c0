"""Fuzzing of one reader guided by coverage, with atheris (`pip install '.[fuzz]'`).

    python tests/fuzz/atheris_harness.py topology-toml CORPUS_FOLDER -runs=100000 -timeout=5

The folder receives what reaches new code; without inputs in it the reader's own examples are put
there. Options are libFuzzer's. Inputs are mutated by libFuzzer and, every other time, by the
mutators of this folder.
"""

import contextlib
import hashlib
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["stepsim"]):
    from fuzz.mutators import mutate
    from fuzz.targets import TARGETS

    from stepsim.base.errors import StepsimError


def main() -> None:
    """Fuzz the reader that the first argument names."""
    target = TARGETS[sys.argv.pop(1)]
    documents = target.seeds()
    corpus = Path(sys.argv[1])
    corpus.mkdir(exist_ok=True)
    if not any(corpus.iterdir()):
        for data in documents:
            (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def check(data: bytes) -> None:
            with contextlib.suppress(StepsimError):
                target.run(data, folder)

        def change(data: bytes, most: int, seed: int) -> bytes:
            if seed % 2:
                return bytes(atheris.Mutate(data, most))
            return mutate(Random(seed), data, documents)[:most]

        atheris.Setup(sys.argv, check, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
