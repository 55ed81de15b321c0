"""Any bytes give a document or one of stepsim's errors, and nothing else: for every reader."""

from pathlib import Path
from random import Random

import pytest
from fuzz.mutators import mutate
from fuzz.targets import TARGETS, Target
from hypothesis import given, settings, strategies as st

from stepsim.base.errors import StepsimError

NAMES = sorted(TARGETS)
SEEDS = st.integers(0, 2**32)


def run(target: Target, data: bytes, folder: Path) -> bool:
    """Whether a document is accepted; the error of a refused one is one printable line."""
    try:
        target.run(data, folder)
    except StepsimError as error:
        message = str(error)
    else:
        return True
    assert message.isprintable()
    assert 0 < len(message) < 1500
    return False


def run_mutated(name: str, seed: int, folder: Path) -> None:
    chance = Random(seed)
    documents = TARGETS[name].seeds()
    run(TARGETS[name], mutate(chance, chance.choice(documents), documents), folder)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes(name: str, tmp_path: Path) -> None:
    """Mutations, which start from accepted documents, and noise."""
    assert any(run(TARGETS[name], data, tmp_path) for data in TARGETS[name].seeds())
    check_mutated(name, tmp_path, 10)
    check_noise(name, tmp_path, 8)


def check_mutated(name: str, folder: Path, count: int) -> None:
    """So many mutated documents are accepted or refused."""

    @settings(max_examples=count, derandomize=True, deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        run_mutated(name, seed, folder)

    check()


def check_noise(name: str, folder: Path, count: int) -> None:
    """So many texts and bytes of no form are accepted or refused."""

    @settings(max_examples=count, derandomize=True, deadline=None)
    @given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(_encoded)))
    def check(data: bytes) -> None:
        run(TARGETS[name], data, folder)

    check()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
