"""Any bytes give a document or one of stepsim's errors, and nothing else: for every reader."""

from pathlib import Path
from random import Random

import pytest
from fuzz.mutators import mutate
from fuzz.targets import TARGETS, Target
from hypothesis import given, settings, strategies as st

from stepsim.base.errors import StepsimError


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


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_any_bytes(name: str, tmp_path: Path) -> None:
    """Mutations, which start from accepted documents, and texts and bytes of no form."""
    target, documents = TARGETS[name], TARGETS[name].seeds()
    assert any(run(target, data, tmp_path) for data in documents)

    @settings(max_examples=10, derandomize=True, deadline=None)
    @given(st.integers(0, 2**32))
    def check_mutated(seed: int) -> None:
        chance = Random(seed)
        run(target, mutate(chance, chance.choice(documents), documents), tmp_path)

    @settings(max_examples=8, derandomize=True, deadline=None)
    @given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(_encoded)))
    def check_noise(data: bytes) -> None:
        run(target, data, tmp_path)

    check_mutated()
    check_noise()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
