"""Any bytes give a document or one of stepsim's errors, and nothing else: for every reader."""

from pathlib import Path
from random import Random

import pytest
from fuzz.mutators import MOST_BYTES, mutate
from fuzz.targets import TARGETS, Target
from hypothesis import given, settings
from hypothesis import strategies as st

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
def test_mutations_start_from_accepted_documents(name: str, tmp_path: Path) -> None:
    assert any(run(TARGETS[name], data, tmp_path) for data in TARGETS[name].seeds())


@pytest.mark.parametrize("name", NAMES)
def test_mutated_documents(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(name)

    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        run_mutated(name, seed, folder)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_mutated_documents(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(name)

    @settings(max_examples=3000, derandomize=True, deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        run_mutated(name, seed, folder)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_noise(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(name)

    @settings(max_examples=40, derandomize=True, deadline=None)
    @given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(_encoded)))
    def check(data: bytes) -> None:
        run(TARGETS[name], data, folder)

    check()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@given(st.integers(0, 2**32), st.binary(max_size=500))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_mutators_repeat_themselves(seed: int, data: bytes) -> None:
    first, second = (mutate(Random(seed), data, [data]) for _ in range(2))
    assert first == second
    assert len(first) <= MOST_BYTES
