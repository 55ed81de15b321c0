"""Packers: no token is lost or made, microbatches hold what they may, ranks are balanced."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.cli.options import PACKER_NAMES
from stepsim.parallel.packers import PACKERS, BatchShape, Packing, Takes, packer_of
from stepsim.parallel.packers.balanced import differencing, swap_works
from stepsim.parallel.packers.dynamic_cp import degrees

NAMES = [*PACKERS]

shapes = st.builds(
    BatchShape,
    ranks=st.integers(1, 5),
    microbatches=st.integers(1, 4),
    count=st.integers(1, 3),
    full_tokens=st.integers(8, 200),
    steps=st.integers(1, 3),
    attention=st.floats(0, 1),
)
documents = st.lists(st.integers(1, 300), min_size=1, max_size=120)


def packed(name: str, lengths: list[int] | Ints, shape: BatchShape) -> Packing:
    return packer_of(name).pack(np.asarray(lengths, dtype=np.int64), shape)


@pytest.mark.parametrize("name", NAMES)
@given(lengths=documents, shape=shapes)
def test_tokens_are_neither_lost_nor_made(name: str, lengths: list[int], shape: BatchShape) -> None:
    """A document is packed whole or not at all, unless it is cut where what is packed ends."""
    packing = packed(name, lengths, shape)
    held = np.bincount(packing.document, packing.real, len(lengths))
    cut = int((np.array(lengths) > shape.full_tokens // shape.count).sum())
    assert ((held > 0) & (held < lengths)).sum() <= max(cut, name.startswith("concat"))
    assert (held <= lengths).all()
    assert (packing.tokens >= packing.real).all()
    if packer_of(name).takes is Takes.STEP:
        assert (held == lengths).all()
    packing.check(name, np.array(lengths), whole=packer_of(name).takes is Takes.STEP)
    assert 0 <= packing.slot.min(initial=0) <= packing.slot.max(initial=0) < shape.slots


@pytest.mark.parametrize("name", ["sequence", "padded", "grouped", "concat", "first-fit"])
@given(lengths=documents, shape=shapes)
def test_no_microbatch_holds_more_than_its_capacity(
    name: str, lengths: list[int], shape: BatchShape
) -> None:
    assert packed(name, lengths, shape).loads().tokens.max() <= shape.full_tokens * 1.0


@given(lengths=documents, shape=shapes)
def test_documents_end_to_end_fill_every_microbatch_but_those_at_the_end(
    lengths: list[int], shape: BatchShape
) -> None:
    tokens = packed("concat", lengths, shape).loads().tokens
    assert set(np.unique(tokens)) <= {0.0, float(shape.full_tokens)}
    assert tokens.sum() == min(sum(lengths) // shape.full_tokens, shape.slots) * shape.full_tokens


@pytest.mark.parametrize("name", NAMES)
def test_equal_documents_make_equal_microbatches(name: str) -> None:
    shape = BatchShape(ranks=4, microbatches=3, count=2, full_tokens=200, steps=2)
    loads = packed(name, [100] * 60, shape).loads()
    filled = loads.tokens[loads.tokens > 0]
    if packer_of(name).takes is Takes.STEP:
        assert loads.tokens.sum(axis=2).std() <= 100
    else:
        assert (filled == 200).all()


def test_padded_documents_are_as_long_as_the_longest_of_their_microbatch() -> None:
    shape = BatchShape(ranks=2, microbatches=1, count=2, full_tokens=20)
    loads = packed("padded", [3, 5, 9, 1], shape).loads()
    assert loads.tokens.ravel().tolist() == [10, 18]
    assert loads.real.ravel().tolist() == [8, 10]
    assert loads.squares.ravel().tolist() == [50, 162]


def test_documents_of_like_length_are_dealt_to_ranks_one_by_one() -> None:
    """Windows of two documents each, longest first: so `get_length_grouped_indices` sorts four."""
    shape = BatchShape(ranks=2, microbatches=1, count=2, full_tokens=20)
    packing = packed("grouped", [6, 9, 7, 8], shape)
    rank_of = dict(zip(packing.real.tolist(), packing.slot.tolist(), strict=True))
    assert rank_of == {9: 0, 6: 1, 8: 0, 7: 1}


@pytest.mark.parametrize("seed", range(5))
def test_differencing_balances_ranks_as_published(seed: int) -> None:
    """verl issue 7412: lengths of mean 1,267 from 38 to 3,072 reach max over mean 1.0000."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(6.95, 0.65, 2898), 38, 3072).round()
    sums = np.bincount(differencing(lengths[None], 8)[0], lengths)
    assert len(sums) == 8
    assert sums.max() / sums.mean() <= 1.0005


@given(weights=st.lists(st.floats(0, 1000), min_size=1, max_size=60), sets=st.integers(1, 7))
def test_differencing_is_never_worse_than_the_largest_item(weights: list[float], sets: int) -> None:
    """Sums of any two sets differ by no more than the largest item: an invariant of the method."""
    sums = np.bincount(differencing(np.array([weights]), sets)[0], weights, sets)
    assert sums.max() - sums.min() <= max(weights) + 1e-6


def test_problems_side_by_side_are_solved_as_one_by_one() -> None:
    weights = np.random.default_rng(3).integers(1, 500, (7, 90)).astype(float)
    together = differencing(weights, 4)
    assert together.tolist() == [differencing(one[None], 4)[0].tolist() for one in weights]
    sums = np.bincount(differencing(np.array([[8.0, 7, 6, 5, 4]]), 2)[0], [8, 7, 6, 5, 4])
    assert sorted(sums.tolist()) == [14, 16]


def test_swapping_balances_the_ranks_of_a_step() -> None:
    """hao-ai-lab/DistCA PR 104's kind: one rank has all the long microbatches."""
    works = np.array([[[400.0] * 4, [50.0] * 4]])
    swapped = swap_works(works)
    assert sorted(swapped.ravel()) == sorted(works.ravel())
    assert swapped.sum(axis=2).tolist() == [[900, 900]]


def test_long_documents_take_powers_of_two_of_ranks() -> None:
    shape = BatchShape(ranks=8, microbatches=1, count=1, full_tokens=4096)
    found = degrees(np.array([10, 4096, 4097, 9000, 16384, 16385, 10**6]), shape)
    assert found.tolist() == [1, 1, 2, 4, 4, 8, 8]


def test_a_long_document_is_shared_by_neighbours() -> None:
    shape = BatchShape(ranks=4, microbatches=1, count=1, full_tokens=100)
    loads = packed("dynamic-cp", [200, 90, 80], shape).loads()
    assert loads.tokens.ravel().tolist() == [100, 100, 90, 80]
    assert loads.squares.ravel().tolist() == [20_000, 20_000, 8100, 6400]


def test_unknown_packers_are_refused_by_name() -> None:
    with pytest.raises(PlanError, match="packer is 'best': expected one of sequence, padded"):
        packer_of("best")


def test_the_help_names_every_packer() -> None:
    assert PACKER_NAMES.removesuffix(".").split(", ") == list(PACKERS)


@pytest.mark.parametrize("field", ["ranks", "microbatches", "count", "full_tokens", "steps"])
def test_a_batch_has_at_least_one_of_everything(field: str) -> None:
    whole: dict[str, Any] = dict.fromkeys(("ranks", "microbatches", "count", "steps"), 1)
    whole["full_tokens"] = 1
    with pytest.raises(PlanError, match=f"{field} is 0: expected at least 1"):
        BatchShape(**whole | {field: 0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"real": [5, 6]}, "packer own packs 11 of 12 tokens, 6 of document 1: expected its 7"),
        ({"slot": [0, 2]}, "packer own: slot is 2: expected 0 to 1"),
        ({"tokens": [5]}, "packer own gave columns of 1 to 2 pieces"),
    ],
)
def test_what_loses_or_makes_tokens_is_one_line(changes: dict[str, list[int]], said: str) -> None:
    shape = BatchShape(ranks=2, microbatches=1, count=1, full_tokens=8)
    columns = {"slot": [0, 1], "document": [0, 1], "tokens": [5, 7], "real": [5, 7]} | changes
    whole = {name: np.array(column) for name, column in columns.items()}
    packing = Packing(shape=shape, squares=np.array([25.0, 49.0]), **whole)
    with pytest.raises(PlanError, match=said):
        packing.check("own", np.array([5, 7]), whole=True)


@given(lengths=documents, shape=shapes)
def test_documents_that_fit_a_rank_are_balanced(lengths: list[int], shape: BatchShape) -> None:
    short = [min(length, shape.full_tokens) for length in lengths]
    names = ("balanced", "dynamic-cp")
    alone, piped = shape, replace(shape, stages=2)
    balanced, *others = [packed(name, short, alone).loads().tokens for name in names]
    for tokens in others:
        assert (tokens.sum(axis=2) == balanced.sum(axis=2)).all()
    balanced, *others = [packed(name, short, piped).loads().tokens for name in names]
    for tokens in others:
        assert (tokens == balanced).all()


def test_ranks_take_more_than_they_need_where_one_would_be_waited_for() -> None:
    """One document that a rank could hold is shared by four, unless that costs too much."""
    free, dear = ((1.0, 0.0),) * 3, ((1.0, 0.0), (4.0, 0.0), (16.0, 0.0))
    for sharing, ranks in ((free, 4), (dear, 1)):
        shape = BatchShape(ranks=4, microbatches=1, count=1, full_tokens=100, sharing=sharing)
        assert len(packed("dynamic-cp", [100], shape).slot) == ranks


def test_what_sharing_costs_lies_between_powers_of_two() -> None:
    shape = BatchShape(
        ranks=8, microbatches=1, count=1, full_tokens=8, sharing=((1.0, 0.0), (1.1, 3.0))
    )
    found = shape.shared_squares(np.full(3, 8), np.array([1, 2, 4]))
    assert found.tolist() == pytest.approx([64, 4 * (8.8 + 3), 2 * (8.8 + 3)])
