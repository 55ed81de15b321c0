"""How long a folder of PyTorch traces takes to read, and the memory that it needs.

    python benchmarks/large_profiles.py [--ranks 64] [--events 10000000] [--folder DIR] [--small]

Every rank has as many operators, launches, flow arrows and kernels as recorded traces have: of six
events one is a kernel, one in fifty of these is a collective of all ranks. The traces are written
first, then read once in a process of its own.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PER_KERNEL = 6
_COLLECTIVE_EVERY = 50
_STEPS = 4
Told = dict[str, object]
_NAMES = ("gemm", "layer_norm", "softmax", "gelu", "dropout", "add", "copy", "adam")


def rank_trace(rank: int, ranks: int, kernels: int) -> str:
    """A rank's trace: kernels 10 us apart, launched 50 us ahead."""
    events: list[Told] = []
    for i in range(kernels):
        start, met = 100.0 + 10 * i + rank % 7 / 10, i % _COLLECTIVE_EVERY == 0
        name = f"void {_NAMES[i % len(_NAMES)]}_kernel<float, {i % 64}>(float*, int)"
        told: Told = {"device": rank % 8, "stream": 20 if met else 7, "correlation": i + 1}
        if met:
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            told |= {
                "Collective name": "allreduce",
                "In msg nelems": 1 << 20,
                "Out msg nelems": 1 << 20,
                "Group size": ranks,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Description": "default_pg",
                "Process Group Ranks": f"[0, 1, ..., {ranks - 1}]",
            }
        told |= {"grid": [1024, 1, 1], "block": [256, 1, 1], "registers per thread": 32}
        begin = start - 50
        for operator in ("aten::linear", "aten::addmm"):
            events.append(_event("cpu_op", operator, 1, begin - 4, 6, {"External id": i}))
        launch: Told = {"External id": i, "cbid": 211, "correlation": i + 1}
        events.append(_event("cuda_runtime", "cudaLaunchKernel", 1, begin, 3, launch))
        events.append(_event("kernel", name, 20 if met else 7, start, 9.5, told))
        for way in ("s", "f"):
            arrow: Told = {"ph": way, "id": i, "pid": 1, "tid": 1, "ts": begin, "cat": "ac2g"}
            events.append({**arrow, "name": "ac2g"})
    length = 10 * kernels / _STEPS
    for step in range(_STEPS):
        begin = 40 + step * length
        events.append(_event("user_annotation", f"ProfilerStep#{step}", 1, begin, length, {}))
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": i} for i in range(8)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "traceEvents": events,
    }
    return json.dumps(trace)


def _event(category: str, name: str, thread: int, start: float, took: float, told: Told) -> Told:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": took,
        "args": told,
    }


def write(folder: Path, ranks: int, events: int) -> int:
    """Write the traces of all ranks, packed; returns their bytes."""
    kernels = max(events // ranks // _PER_KERNEL, _COLLECTIVE_EVERY)
    for rank in range(ranks):
        path = folder / f"rank{rank}.pt.trace.json.gz"
        if not path.exists():
            path.write_bytes(gzip.compress(rank_trace(rank, ranks, kernels).encode(), 1))
    return sum(each.stat().st_size for each in folder.iterdir())


READ = """
import resource, sys, time
from pathlib import Path
from stepsim.files.measured import load_profile
begin = time.perf_counter()
profile = load_profile(Path(sys.argv[1]))
took = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(len(profile.events), len(profile.warnings), took, peak)
"""


def main() -> None:
    """Write the traces, read them, and print a row of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    ranks, events = (2, 1200) if options.small else (options.ranks, options.events)
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(exist_ok=True)
        begin = time.perf_counter()
        size = write(folder, ranks, events)
        print(f"written in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
        command = [sys.executable, "-c", READ, str(folder)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print("| ranks | events | kernels | packed, MB | read, s | peak of a process, GB |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {ranks} | {events:,} | {int(told[0]):,} | {size / 1e6:.0f} | {float(told[2]):.1f} | "
        f"{max(children, float(told[3])):.2f} |"
    )


if __name__ == "__main__":
    main()
