"""Time and memory of a trace of about a million slices, plain and compressed.

python benchmarks/trace_times.py
"""

import resource
import tempfile
import time
from pathlib import Path

from sizes import sized

import stepsim
from stepsim.base.process import paused

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD, RANKS = sized(("gpt_1024.txt", range(448)), ("gpt_tp4.txt", range(16)))


def main() -> None:
    with paused():
        result = stepsim.simulate(ROOT / "workloads" / WORKLOAD, "hgx-h100", fold_ranks=False)
    before = _peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("step.json", "step.json.gz"):
            path = Path(folder) / name
            begin = time.process_time()
            result.write_trace(path, ranks=RANKS)
            seconds = time.process_time() - begin
            print(f"{name}: {seconds:.1f} s, {path.stat().st_size / 1e6:.0f} MB")
        after = _peak_mb()
        slices = (Path(folder) / "step.json").read_bytes().count(b'"ph":"B"')
    print(f"{slices} slices; peak memory {before:.0f} MB before, {after:.0f} MB after")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
