"""The campaign counts what happens, goes on where it was stopped, and notices failures."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import campaign
from fuzz.targets import TARGETS


@pytest.mark.slow
def test_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    campaign.CHUNK, kept = 20, campaign.CHUNK
    try:
        first = campaign.Campaign(inputs=20, seed=3, folder=tmp_path)
        first.run(1)
        more = campaign.Campaign(inputs=60, seed=3, folder=tmp_path)
        assert more.done == {0}
        more.run(2)
    finally:
        campaign.CHUNK = kept
    assert more.counts.total() == 60
    assert not more.kinds
    assert len(more.log.read_text().splitlines()) == 3


def test_inputs_are_told_by_their_number() -> None:
    made = [campaign.make_input(0, number) for number in range(50)]
    assert made == [campaign.make_input(0, number) for number in range(50)]
    assert made != [campaign.make_input(1, number) for number in range(50)]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("lambda text: 1 / 0", "crash ZeroDivisionError"),
        ("lambda text: bytearray(3 << 30)", "memory MemoryError"),
        ("lambda text: [None for _ in iter(int, 1)]", "timeout OutOfTime"),
        ("lambda text: text", "accepted"),
    ],
)
def test_notices_what_is_wrong(body: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "crash-units-1.bin").write_bytes(b"1 ns")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(campaign.__file__).parents[1])!r})\n"
        "from fuzz import campaign, targets\n"
        f"campaign.SECONDS = 0.5; campaign.TARGETS = {{'units': targets.words({body}, '1 ns')}}\n"
        f"campaign.replay([campaign.Path({str(tmp_path / 'crash-units-1.bin')!r})])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert f"crash-units-1.bin {outcome}" in found.stdout, found


def test_every_parser_has_examples() -> None:
    assert all(target.seeds() for target in TARGETS.values())
