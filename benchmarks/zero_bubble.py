"""Compare bubble rates with the calculated ones of the Zero Bubble paper, arXiv:2401.10241.

Usage: python benchmarks/zero_bubble.py FOLDER/reference/measured/zero_bubble.csv
Prints the paper's rate and ours per setting: (T - m (F + B + W)) / T, with T the longest time from
the start of a rank's first action to the end of its last.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from sizes import arguments, sized

from stepsim.base.units import PS_PER_NS
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.auto_zb import auto_zb, weight_grad_share
from stepsim.parallel.schedules.interleaved import interleaved
from stepsim.parallel.schedules.one_f_one_b import one_f_one_b
from stepsim.parallel.schedules.zb_h1 import zb_h1

PS_PER_MS = 10**6 * PS_PER_NS
Rates = Sequence[tuple[float, float]]
"""The paper's rate and ours, per schedule."""

TIMES = ("T_F_ms", "T_B_ms", "T_W_ms", "T_comm_ms")


def longest_span(schedule: Schedule, durations: dict[str, int], hop: int) -> int:
    """T: every action starts once the rank is free and its input has arrived."""
    ranks, stages = schedule.placement.ranks, schedule.placement.stages
    waiting = [list(schedule.actions(rank))[::-1] for rank in range(ranks)]
    ends: dict[tuple[str, int, int], int] = {}
    clock, first = [0] * ranks, [-1] * ranks
    while any(waiting):
        for rank, actions in enumerate(waiting):
            while actions:
                kind, stage, j = actions[-1].kind.value, actions[-1].stage, actions[-1].microbatch
                output = "F" if kind == "F" else "gradient"
                source = {"F": stage - 1, "W": -1}.get(kind, stage + 1)
                arrival = 0
                if 0 <= source < stages:
                    if (output, source, j) not in ends:
                        break
                    arrival = ends[output, source, j] + hop
                start = max(clock[rank], arrival)
                first[rank] = start if first[rank] < 0 else first[rank]
                clock[rank] = start + durations[kind]
                if kind != "W":
                    ends[output, stage, j] = clock[rank]
                actions.pop()
    return max(end - start for start, end in zip(first, clock, strict=True))


def rates(row: dict[str, str]) -> Rates:
    """The paper's rate and ours for 1F1B, ZB-1p and ZB-2p."""
    ranks, microbatches = int(row["p"]), int(row["m"])
    f, i, w, hop = (round(float(row[name]) * PS_PER_MS) for name in TIMES)
    hidden, heads, sequence = (int(row[name]) for name in ("hidden", "heads", "seq"))
    schedules = {"1F1B": one_f_one_b(ranks=ranks, microbatches=microbatches)}
    for name, limit in (("ZB-1p", 1.0), ("ZB-2p", 2.0)):
        schedules[name] = auto_zb(
            ranks=ranks,
            microbatches=microbatches,
            forward_ps=f,
            input_grad_ps=i,
            weight_grad_ps=w,
            hop_ps=hop,
            memory_limit=limit,
            weight_grad_share=weight_grad_share(hidden=hidden, heads=heads, sequence=sequence),
        )
    durations = {"F": f, "I": i, "W": w, "B": i + w}
    spans = [longest_span(schedule, durations, hop) for schedule in schedules.values()]
    ours = [1 - microbatches * (f + i + w) / span for span in spans]
    paper = [float(row[f"bubble_calc_{name}"]) for name in schedules]
    return list(zip(paper, ours, strict=True))


def other_rates(row: dict[str, str]) -> Rates:
    """The paper's rate and ours for 1F1B-I and ZB-H1, which differ for known reasons."""
    ranks, microbatches = int(row["p"]), int(row["m"])
    f, i, w, hop = (round(float(row[name]) * PS_PER_MS) for name in TIMES)
    whole = microbatches * (f + i + w)
    chunks = (int(row["layers"]) + 2) // ranks
    mixed = interleaved(ranks=ranks, microbatches=microbatches, chunks=chunks)
    part = {"F": f // chunks, "B": (i + w) // chunks}
    spans = [
        longest_span(mixed, part, hop),
        longest_span(
            zb_h1(ranks=ranks, microbatches=microbatches), {"F": f, "I": i, "W": w, "B": i + w}, hop
        ),
    ]
    paper = [float(row[f"bubble_calc_{name}"]) for name in ("1F1B-I", "ZB-H1")]
    return list(zip(paper, [1 - whole / span for span in spans], strict=True))


def print_table(names: Sequence[str], found: Sequence[tuple[dict[str, str], Rates]]) -> float:
    """Print the paper's rates beside ours; returns the largest difference."""
    print("| model | p | m | " + " | ".join(f"{name} paper | ours" for name in names) + " |")
    print("|---|---|---|" + "---|---|" * len(names))
    for row, pairs in found:
        cells = [row["model"], row["p"], row["m"]]
        cells += [f"{rate:.4f}" for pair in pairs for rate in pair]
        print(f"| {' | '.join(cells)} |")
    return max(abs(ours - paper) for _, pairs in found for paper, ours in pairs)


def main() -> None:
    """Print both tables and the largest differences."""
    with Path(arguments()[0]).open(newline="") as file:
        rows = list(csv.DictReader(file))[: sized(None, 2)]
    for names, calculate in (
        (("1F1B", "ZB-1p", "ZB-2p"), rates),
        (("1F1B-I", "ZB-H1"), other_rates),
    ):
        worst = print_table(names, [(row, calculate(row)) for row in rows])
        print(f"\nlargest difference {worst:.5f}\n")


if __name__ == "__main__":
    main()
