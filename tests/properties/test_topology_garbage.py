"""Whatever a topology file holds, reading it ends in a topology or in one of stepsim's errors."""

from pathlib import Path

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from unit.files.test_topology_files import DIMENSIONS, LINKS
from unit.files.test_topology_readers import ASTRA, SIMAI
from unit.files.test_topology_tables import DRAGONFLY, LEAF, NODE, RATES, TORUS

from stepsim.base.errors import StepsimError
from stepsim.files.load import read_topology

HEAD = f'name = "t"\nsource = "t"\n{NODE}[[dimension]]\nname = "net"\n{RATES}'
FILES = {
    "dimensions.toml": DIMENSIONS,
    "links.toml": LINKS,
    "torus.toml": HEAD + TORUS,
    "leaf.toml": HEAD + LEAF,
    "dragonfly.toml": HEAD + DRAGONFLY,
    "astra.yml": ASTRA,
    "simai": SIMAI,
}
WORDS = st.sampled_from(
    ["0", "-1", "1e400", "nan", "inf", "[", "]", "=", "auto", '"auto"', "\x00", "é", "9" * 30, ":"]
)


@examples(300)
@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_damaged_files(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokens = FILES[name].split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(tokens) - 1))
        tokens[place] = data.draw(st.one_of(WORDS, st.text(max_size=6), st.sampled_from(tokens)))
    read(tmp_path_factory.getbasetemp() / name, " ".join(tokens).encode("utf-8", "replace"))


@examples(200)
@given(name=st.sampled_from(sorted(FILES)), content=st.binary(max_size=80))
def test_random_bytes(name: str, content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    read(tmp_path_factory.getbasetemp() / name, content)


def read(path: Path, content: bytes) -> None:
    """Read the file; if it holds a topology, its ends can be reached."""
    path.write_bytes(content)
    message = str(path)
    try:
        topology = read_topology(path)
    except StepsimError as error:
        topology, message = None, str(error)
    assert message.startswith(str(path))
    if topology is not None and topology.npus > 1:
        topology.load(np.array([0]), np.array([topology.npus - 1]), np.ones(1))
