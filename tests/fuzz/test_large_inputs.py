"""Documents of a megabyte are read or refused within seconds of computing."""

from pathlib import Path
from time import process_time

import pytest
from fuzz import seeds
from fuzz.targets import TARGETS
from fuzz.test_readers import run

MEGABYTE = 1 << 20
ROW = "attention -1 1000 ALLREDUCE 1024 1000 NONE 0 1000 NONE 0 100\n"
AXES = "[axes]\n" + "".join(f'a{i}.bandwidth = "1 GB/s"\n' for i in range(30_000))
BLOCK = (
    "[rank:{0} stage:{0}] transformer-block(module) forward time (no send/recv) - step 2\n"
    "  layer[1]: total=3.0ms, ops=8, avg/op=0.1ms\n"
)
LINK = '[[link]]\nfrom = "a{}"\nto = "a{}"\nlink_class = "cable"\n'

LARGE = {
    "workload": f"HYBRID_TRANSFORMER\n1\n{ROW * (MEGABYTE // len(ROW))}",
    "schedule-csv": ",".join(f"0F{i},0B{i}" for i in range(70_000)),
    "sweep-toml": f'workload = "w"\n{AXES}',
    "calibration-toml": seeds.CALIBRATION.replace(
        '[["optimizer"', "[" + '["x", "y"],' * 20_000 + '["optimizer"'
    ),
    "step-table-csv": "workload,measured_s\n" + "w.txt,1.5\n" * 100_000,
    "step-table-toml": '[[run]]\nworkload = "w"\nmeasured_s = 1\n' * 25_000,
    "expert-load": "1000\n" * 200_000,
    "measurements": "kind,ranks,nodes,bytes,time_us\n"
    + "".join(f"all_reduce,8,1,{i},{i}.5\n" for i in range(1, 40_000)),
    "optimus-log": "> PP: 9000\n> TP: 1\n> DP: 1\n> GBS: 8\n> MBS: 1\n"
    + "".join(BLOCK.format(i) for i in range(7_500)),
    "topology-toml": seeds.EXPLICIT + "".join(LINK.format(i, i + 1) for i in range(14_000)),
    "topology-simai": "15002 1 0 15000 15001 X\n"
    + " ".join(str(i) for i in range(2, 15_002))
    + "\n"
    + "".join(f"{i} {i + 1} 1Gbps 1ns 0\n" for i in range(15_001)),
    "topology-astra": "topology: [" + "Ring, " * 150_000 + "]\n",
    "result-json": seeds.results()[0].decode().replace("[", "[" * 100_000, 1),
    "megatron-trace": seeds.traces()[0].decode() * 500,
    "axis": "microbatches=" + ",".join(str(i) for i in range(1, 99_999)),
    "ranks": ",".join(str(i) for i in range(150_000)),
    "units": "1" * MEGABYTE,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_documents(name: str, tmp_path: Path) -> None:
    began = process_time()
    run(TARGETS[name], LARGE[name].encode()[: 2 * MEGABYTE], tmp_path)
    assert process_time() - began < 20
