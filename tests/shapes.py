"""Shapes that schedules accept, as Hypothesis strategies."""

from collections.abc import Callable

from hypothesis import strategies as st

from stepsim.parallel.schedules import Schedule, build


@st.composite
def freely(
    draw: st.DrawFn,
    name: str,
    most: int,
    *,
    chunks: st.SearchStrategy[int] | None = None,
    fewest: Callable[[int], int] = lambda ranks: 1,
) -> Schedule:
    """Any number of microbatches from `fewest(ranks)` on."""
    ranks = draw(st.integers(1, most))
    microbatches = fewest(ranks) + draw(st.integers(0, 24))
    held = None if chunks is None else draw(chunks)
    return build(name, ranks=ranks, microbatches=microbatches, chunks=held)


@st.composite
def dualpipe(draw: st.DrawFn, most: int) -> Schedule:
    ranks = 2 * draw(st.integers(1, (most + 1) // 2))
    return build("dualpipe", ranks=ranks, microbatches=2 * (ranks + draw(st.integers(0, 9))))


@st.composite
def megatron(draw: st.DrawFn, most: int, *, whole_groups: bool = False) -> Schedule:
    """Groups of P or more microbatches; the last one may be short, but not shorter than P."""
    ranks, chunks = draw(st.integers(1, most)), draw(st.integers(2, 4))
    group = draw(st.integers(ranks, 2 * ranks + 1))
    rest = 0 if whole_groups else draw(st.sampled_from([0, *range(ranks, group)]))
    microbatches = draw(st.integers(1, 3)) * group + rest
    shape = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    return build("interleaved", **shape, group_size=group)


@st.composite
def combined(draw: st.DrawFn, most: int) -> Schedule:
    """Megatron's groups, or one chunk on a single rank."""
    ranks, chunks = draw(st.integers(1, most)), draw(st.integers(2, 4))
    if ranks == 1:
        return build("combined-1f1b", ranks=1, microbatches=draw(st.integers(1, 9)))
    group = draw(st.integers(ranks, 2 * ranks + 1))
    microbatches = draw(st.integers(1, 3)) * group
    shape = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    return build("combined-1f1b", **shape, group_size=group)


@st.composite
def torch_rounds(draw: st.DrawFn, name: str, most: int) -> Schedule:
    """Fewer microbatches than ranks, or equal rounds of at least P."""
    ranks, chunks = draw(st.integers(1, most)), draw(st.integers(1, 4))
    microbatches = draw(st.integers(1, 30))
    microbatches -= microbatches % max(1, microbatches // ranks)
    options = {"grouping": "torch"} if name == "interleaved" else {}
    return build(name, ranks=ranks, microbatches=microbatches, chunks=chunks, **options)


def shapes(most: int) -> dict[str, st.SearchStrategy[Schedule]]:
    """Every schedule on up to `most` ranks; DualPipe, which needs an even number, one more."""
    return {
        "gpipe": freely("gpipe", most),
        "1f1b": freely("1f1b", most),
        "interleaved": megatron(most) | torch_rounds("interleaved", most),
        "combined-1f1b": combined(most),
        "looped-bfs": freely("looped-bfs", most, chunks=st.integers(1, 4)),
        "interleaved-zb": torch_rounds("interleaved-zb", most),
        "zb-h1": freely("zb-h1", most),
        "zb-v": freely("zb-v", most),
        "v-half": freely("v-half", most),
        "v-min": freely("v-min", most),
        "dualpipe": dualpipe(most),
        "dualpipe-v": freely("dualpipe-v", most, fewest=lambda ranks: 2 * ranks),
    }
