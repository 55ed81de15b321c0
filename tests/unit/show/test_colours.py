"""Every mark and every word of the page stands out from its paper, in light and in dark."""

import re
from itertools import chain, combinations, product

import numpy as np
import pytest
from eyes import BLIND, lab

from stepsim.base.axes import Part
from stepsim.show.page.looks import PAPERS, PART_LOOKS
from stepsim.show.page.page import page_of
from stepsim.show.palette import MEMORY_LOOKS, SHADES, Shade, contrast

MARK, WORDS = 3.0, 4.5
TINTS = [
    *(tint for _, tint in SHADES.values()),
    *(tint for _, tint in PART_LOOKS.values() if tint),
    *MEMORY_LOOKS.values(),
]


def looks() -> list[dict[str, str]]:
    """Colours of the page by their names, in light and in dark."""
    blocks = re.findall(r":root[^{]*\{(.*?)\}", page_of().decode(), re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_contrast_is_that_of_the_guideline() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_every_mark_stands_out() -> None:
    for tint in TINTS:
        for colour, paper in zip(tint, PAPERS, strict=True):
            assert contrast(colour, paper) >= MARK, (colour, paper)


def test_everything_that_is_drawn_has_a_colour() -> None:
    assert PART_LOOKS.keys() == {part.key for part in Part}


@pytest.mark.parametrize("blindness", BLIND)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_marks_can_be_told_apart(scheme: int, blindness: str) -> None:
    """All that a timeline shows, and all kinds of memory.

    Recorded communication is beside no message of a simulated step.
    """
    shades = {(*tint,) for shade, (_, tint) in SHADES.items() if shade != Shade.TRANSFER}
    assert len(shades) == len(SHADES) - 1
    parts = {(*tint,) for _, tint in PART_LOOKS.values() if tint}
    drawn = (combinations(sorted(each), 2) for each in (shades | parts, MEMORY_LOOKS.values()))
    for one, other in chain.from_iterable(drawn):
        apart = np.linalg.norm(lab(one[scheme], blindness) - lab(other[scheme], blindness))
        assert apart > 12, (one, other)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_and_edges_stand_out(scheme: int) -> None:
    look = looks()[scheme]
    assert look["paper"] == PAPERS[scheme]
    words = product(("ink", "quiet", "accent", "better", "worse"), ("paper", "wash"))
    for ink, paper in chain(words, [("on-accent", "accent")]):
        assert contrast(look[ink], look[paper]) >= WORDS, (ink, paper)
    for mark in ("idle", "edge"):
        assert contrast(look[mark], look["paper"]) >= MARK
