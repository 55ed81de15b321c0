"""Interleaved 1F1B: 1F1B over several chunks per rank, which shortens warm-up and drain.

Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021; Megatron-LM `forward_backward_pipelining_with_interleaving` and
`get_schedule_table`; torch `ScheduleInterleaved1F1B`.
"""

from stepsim.parallel.schedules.base import (
    Schedule,
    alternating,
    backward_table,
    chunks_on_ranks,
    forward_table,
    not_taken,
    warm_up,
)

_NAME = "interleaved"


def interleaved(
    *,
    ranks: int,
    microbatches: int,
    chunks: int = 2,
    group_size: int | None = None,
    grouping: str = "megatron",
) -> Schedule:
    """Interleaved 1F1B: microbatches pass through the chunks in groups.

    Megatron's groups have `group_size` microbatches, by default as many as ranks, and the last one
    may be shorter if it still has as many as ranks. Torch's groups are the equal parts of
    `microbatches // ranks` rounds. Rank r runs min(2(P-1-r) + (v-1)g, mv) forwards, then pairs of
    one forward and one backward, then the remaining backwards. Raises ScheduleError where the
    chosen original refuses.
    """
    placement = chunks_on_ranks(_NAME, ranks, microbatches, chunks)
    megatron = grouping == "megatron"
    if megatron:
        group = megatron_group_size(
            _NAME, ranks=ranks, microbatches=microbatches, chunks=chunks, group_size=group_size
        )
    elif grouping != "torch":
        raise not_taken(_NAME, "grouping", grouping, "megatron or torch")
    elif group_size is not None:
        raise not_taken(_NAME, "group_size", group_size, "none: grouping torch sets its own")
    else:
        group = torch_group_size(_NAME, ranks, microbatches)
    forwards = forward_table(chunks, microbatches, group)
    leads = warm_up(ranks, chunks * microbatches, 2, (chunks - 1) * group)
    return Schedule(
        _NAME,
        placement,
        microbatches,
        megatron=megatron,
        fills_once=True,
        orders=alternating(leads, forwards, backward_table(forwards)),
        warm_up=leads,
    )


def torch_group_size(name: str, ranks: int, microbatches: int) -> int:
    """Microbatches per round of torch's interleaved schedules; all in one if fewer than ranks.

    Raises ScheduleError when the rounds would be uneven.
    """
    rounds = max(1, microbatches // ranks)
    group, left = divmod(microbatches, rounds)
    if left:
        allowed = f"a multiple of microbatches // ranks ({rounds}), such as {group * rounds}"
        raise not_taken(name, "microbatches", microbatches, allowed)
    return group


def megatron_group_size(
    name: str, *, ranks: int, microbatches: int, chunks: int, group_size: int | None
) -> int:
    """Microbatches per group of Megatron's interleaved schedules, by default as many as ranks.

    Raises ScheduleError unless v >= 2, P <= g <= m, and a short last group has P or more.
    """
    group = ranks if group_size is None else group_size
    if chunks < 2:
        raise not_taken(name, "chunks", chunks, "at least 2 (1f1b holds one)")
    if microbatches < ranks:
        other = ", or grouping torch" if name == _NAME else ""
        raise not_taken(name, "microbatches", microbatches, f"at least {ranks} (ranks){other}")
    if not ranks <= group <= microbatches:
        allowed = f"from {ranks} (ranks) to {microbatches} (microbatches)"
        raise not_taken(name, "group_size", group, allowed)
    left = microbatches % group
    if 0 < left < ranks:
        allowed = (
            f"a multiple of group_size ({group}), such as {microbatches - left}, "
            f"or one with a remainder of at least {ranks} (ranks)"
        )
        raise not_taken(name, "microbatches", microbatches, allowed)
    return group
