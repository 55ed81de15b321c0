"""Whole sweeps: seconds and peak memory; how much two workers are worth.

Usage: python benchmarks/sweep_times.py
Run it on a quiet machine. The workers' memory is not in the peak, which is the main process's.
"""

import tempfile
from pathlib import Path

from sizes import sized
from speed import STEPSIM, WORKLOADS, measure

GPT = str(WORKLOADS / sized("gpt_1024.txt", "gpt_tp4.txt"))
FIVE = sized("schedule=1f1b,interleaved:2,interleaved:4,zb-h1,zb-v", "schedule=1f1b,gpipe")
FAIR = ("--contention", "fair", "--set", "fabric.bandwidth=100..800 Gbps:" + sized("256", "8"))


def sweep(folder: str, name: str, *arguments: str) -> tuple[float, float]:
    """Seconds and peak MB of one sweep of gpt_1024 on hgx-h100 into a new database."""
    database = str(Path(folder, f"{name}.sqlite"))
    return measure([*STEPSIM, "sweep", GPT, "-q", "-t", "hgx-h100", "--db", database, *arguments])


def main() -> None:
    """Print the table and the gain of the second worker."""
    with tempfile.TemporaryDirectory() as folder:
        figures = ["--plot", f"{folder}/a.png"]
        axes = ["--set", "fabric.bandwidth=50..800 Gbps:" + sized("64", "4"), "--set", FIVE]
        found = {"64 bandwidths x 5 schedules, figures": sweep(folder, "a", *axes, *figures)}
        for jobs in ("1", "2"):
            label = f"256 bandwidths, --contention fair, --jobs {jobs}"
            found[label] = sweep(folder, jobs, *FAIR, "--jobs", jobs)
        export = ["--export", f"{folder}/a.csv"]
        found["the first table again, with CSV"] = sweep(folder, "a", *axes, *export, "--resume")
    print("| sweep of gpt_1024 | seconds | peak MB |\n|---|---|---|")
    for name, (seconds, peak) in found.items():
        print(f"| {name} | {seconds:.1f} | {peak:.0f} |")
    one, two = (seconds for name, (seconds, _) in found.items() if "fair" in name)
    print(f"\ntwo workers: {one / two:.2f} times one")


if __name__ == "__main__":
    main()
