"""Bubble rates and iterations of the Zero Bubble paper, arXiv:2401.10241.

Usage: python benchmarks/zero_bubble.py FOLDER/reference/measured/zero_bubble.csv
Prints the paper's calculated rate and ours per setting: (T - m (F + B + W)) / T, with T the longest
time from the start of a rank's first action to the end of its last. Then it prints the iterations
predicted for its cluster; host time and optimizer come from the traces in `megatron_moe_16gpu`
beside the file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from accuracy_published import rows_of
from sizes import arguments, sized
from zero_bubble_settings import PS_PER_MS, Machine, Setting, constant_of_messages

from stepsim.base.units import PS_PER_S
from stepsim.files.measured import load_trace
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.zb_h1 import zb_h1

Rates = Sequence[tuple[float, float]]
"""The paper's rate and ours, per schedule."""

BANDWIDTH_RATIO = 3.35 / 2.039
"""Memory bandwidth of the traces' H800 over that of the paper's A100 80 GB SXM, data sheets."""
GRADIENT_BYTES = 4


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


def durations_of(setting: Setting, parts: int = 1) -> dict[str, int]:
    """Times of actions by kind, of one of so many equal chunks."""
    f, i, w = (setting.time(name) // parts for name in "FBW")
    return {"F": f, "I": i, "W": w, "B": (setting.time("B") + setting.time("W")) // parts}


def compared(setting: Setting, spans: dict[str, int]) -> Rates:
    """The paper's rates and those of our spans."""
    whole = setting.number("m") * sum(setting.time(name) for name in "FBW")
    return [
        (float(setting.row[f"bubble_calc_{name}"]), 1 - whole / span)
        for name, span in spans.items()
    ]


def rates(setting: Setting) -> Rates:
    """The paper's rate and ours for 1F1B, ZB-1p and ZB-2p."""
    durations, hop = durations_of(setting), setting.time("comm")
    return compared(
        setting,
        {
            name: longest_span(setting.schedules[name], durations, hop)
            for name in ("1F1B", "ZB-1p", "ZB-2p")
        },
    )


def other_rates(setting: Setting) -> Rates:
    """The paper's rate and ours for 1F1B-I and ZB-H1, which differ for known reasons."""
    hop = setting.time("comm")
    plain = zb_h1(ranks=setting.number("p"), microbatches=setting.number("m"))
    parts = durations_of(setting, setting.layers)
    return compared(
        setting,
        {
            "1F1B-I": longest_span(setting.schedules["1F1B-I"], parts, hop),
            "ZB-H1": longest_span(plain, durations_of(setting), hop),
        },
    )


def print_table(names: Sequence[str], found: Sequence[tuple[dict[str, str], Rates]]) -> float:
    """Print the paper's rates beside ours; returns the largest difference."""
    print("| model | p | m | " + " | ".join(f"{name} paper | ours" for name in names) + " |")
    print("|---|---|---|" + "---|---|" * len(names))
    for row, pairs in found:
        cells = [row["model"], row["p"], row["m"]]
        cells += [f"{rate:.4f}" for pair in pairs for rate in pair]
        print(f"| {' | '.join(cells)} |")
    return max(abs(ours - paper) for _, pairs in found for paper, ours in pairs)


ITERATIONS = ("1F1B", "1F1B-I", "ZB-1p", "ZB-2p")


def machine_of(settings: Sequence[Setting], traces: Path) -> Machine:
    """Host time and optimizer from measured runs, the constant of messages from the profiles."""
    found = calibrate_traces([load_trace(path) for path in sorted(traces.iterdir())])
    host, optimizer = found.host_overhead, found.optimizer
    if host is None or optimizer is None:
        raise SystemExit(f"{traces}: no host time or no optimizer in these runs")
    return Machine(
        host=host.value,
        hop_constant=constant_of_messages(settings),
        optimizer=GRADIENT_BYTES / optimizer.value * PS_PER_S * BANDWIDTH_RATIO,
    )


def iterations(settings: Sequence[Setting], machine: Machine) -> Iterator[str]:
    """What was calibrated, and the predicted iterations."""
    known = {s.row["model"]: s for s in settings if s.row["iter_ms_measured_1F1B"]}
    excess = {model: machine.excess(setting) for model, setting in known.items()}
    yield f"host time per action {machine.host / PS_PER_MS:.3f} ms"
    yield f"constant of T_comm {machine.hop_constant / PS_PER_MS:.3f} ms"
    yield f"optimizer {machine.optimizer:.1f} ms per billion parameters of a stage"
    yield ""
    yield "| model | last stage, excess | of F + B + W, ms | optimizer, ms |"
    yield "|---|---|---|---|"
    for model, setting in known.items():
        whole = sum(setting.time(name) for name in "FBW") / PS_PER_MS
        update = machine.optimizer * setting.stage_parameters / PS_PER_MS
        yield (f"| {model} | {excess[model]:.1%} | {excess[model] * whole:.2f} | {update:.1f} |")
    yield ""
    yield "| model | p | m | " + " | ".join(f"{name}, ms" for name in ITERATIONS) + " |"
    yield "|---|---|---|" + "---|" * len(ITERATIONS)
    for setting in settings:
        model = setting.row["model"]
        times = [machine.iteration_ms(setting, name, excess[model]) for name in ITERATIONS]
        cells = [model, setting.row["p"], setting.row["m"], *(f"{time:.0f}" for time in times)]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print both tables of rates with the largest differences, and the iterations."""
    path = Path(arguments()[0])
    every = [Setting(row=row) for row in rows_of(path)]
    settings = every[: sized(None, 2)]
    for names, calculate in (
        (("1F1B", "ZB-1p", "ZB-2p"), rates),
        (("1F1B-I", "ZB-H1"), other_rates),
    ):
        worst = print_table(names, [(each.row, calculate(each)) for each in settings])
        print(f"\nlargest difference {worst:.5f}\n")
    machine = machine_of(every, path.parent / "megatron_moe_16gpu")
    print("\n".join(iterations(settings, machine)))


if __name__ == "__main__":
    main()
