"""What fuzzing has found, each as the smallest document that showed it."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from fuzz import seeds
from fuzz.model_checks import GEMM, MODEL_CALIBRATION, TITAN, devices, tar
from fuzz.targets import TARGETS

import stepsim
from stepsim.base.errors import SimulationError, StepsimError
from stepsim.files.traces.chakra import read_chakra

HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD\n1\n"
DIGITS = "1" * 5000
LONG = "9" * 400

REFUSED = {
    "conversion in a row's name": ("workload", f"{HEADER}%s -1 x NONE 0 1 NONE 0 1 NONE 0 1\n"),
    "bottom layers without any layer": (
        "workload",
        "HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER 1\n1\nnorm -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n",
    ),
    "log range over 323 powers of ten": ("axis", "a.latency=1e-320..1024 ns:11 log"),
    "a time without bandwidths before another": (
        "measurements",
        seeds.NCCL.replace("time   algbw", "time   time   algbw"),
    ),
    "5,000 digits and a unit": ("units", f"{DIGITS} ns"),
    "5,000 digits of bytes": ("sizes", DIGITS),
    "integer above all floats": ("axis", f"compute_scale={LONG}"),
    "lists in lists": ("step-table-toml", "run = " + "[" * 20_000),
    "5,000 digits in TOML": ("step-table-toml", f"[[run]]\nmeasured_s = {DIGITS}\n"),
    "seconds above all floats": (
        "step-table-toml",
        f'[[run]]\nworkload = "w"\nmeasured_s = 1{LONG[:400]}\n',
    ),
    "milliseconds that are none": (
        "calibration-toml",
        seeds.CALIBRATION.replace('"3.25 ms"', "nan"),
    ),
    "milliseconds above all times": (
        "calibration-toml",
        seeds.CALIBRATION.replace("3.25 ms", "1e308 ms"),
    ),
    "size above 64 bits": ("calibration-toml", seeds.CALIBRATION.replace("1024,", f"{LONG},")),
    "time above 64 bits": ("calibration-toml", seeds.CALIBRATION.replace("21.5 us", "1e300 us")),
    "hundreds of digits in YAML": ("topology-astra", seeds.ASTRA.replace("4,", f"{LONG},", 1)),
    "2**64 NICs": (
        "topology-toml",
        seeds.NESTED.replace("nics = 2", "nics = 18446744073709551616"),
    ),
    "millions of NPUs on two links": (
        "topology-toml",
        seeds.EXPLICIT.replace("npus = 2", "npus = 16777216"),
    ),
    "millions of GPUs on few links": (
        "topology-simai",
        seeds.SIMAI_NETWORK.replace("7 2 2 1", "16777216 2 2 1"),
    ),
    "hundreds of digits in a log": (
        "optimus-log",
        seeds.optimus_logs()[0].decode().replace("38.362", LONG),
    ),
    "products of 1e308 rows": ("gemm-table", GEMM.replace("8192,8192", "1e308,8192")),
    "infinite factor": ("model-calibration", MODEL_CALIBRATION.replace("1.07", "inf")),
    "factor below all floats": ("model-calibration", MODEL_CALIBRATION.replace("1.07", "1e-320")),
    "tokens that take 106 days": ("step-log", TITAN.replace("5,000", "1e-300")),
    "a million million layers": (
        "published-steps",
        seeds.PUBLISHED.replace(",1024,4,", ",1024,999999999999,"),
    ),
    "a cell of 200,000 characters": (
        "published-steps",
        seeds.PUBLISHED.replace("small", "x" * 200_000),
    ),
    "stages without layers": (
        "published-steps",
        seeds.PUBLISHED.replace(",2,2,2,", ",2,999999,2,").replace(",1,1,8,", ",1,999999,8,"),
    ),
    "a device without memory": (
        "device-toml",
        devices()[0].decode().replace('memory = "', 'memory = "-0.0 GB" #', 1),
    ),
    "a step of no time": (
        "published-steps",
        seeds.PUBLISHED.replace(",0.5", ",0").replace(",0.7", ",0"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    reader, text = REFUSED[name]
    with pytest.raises(StepsimError) as error:
        TARGETS[reader].run(text.encode(), tmp_path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("name", ["gzip", "gzip in tar"])
def test_archives_that_unpack_to_gigabytes(name: str, tmp_path: Path) -> None:
    packed = gzip.compress(bytes(128 << 20), 1)
    data = {"gzip": packed, "gzip in tar": tar({"run.0.et.gz": packed})}
    path = tmp_path / "run.et.gz"
    path.write_bytes(data[name])
    tracemalloc.start()
    try:
        with pytest.raises(StepsimError, match="unpacks to more than"):
            read_chakra(path)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_factor_above_all_floats(tmp_path: Path) -> None:
    TARGETS["sizes"].run(f"1..2:x1{LONG}".encode(), tmp_path)


def test_tiny_expert_loads(tmp_path: Path) -> None:
    TARGETS["expert-load"].run(b"1e-320\n1e18\n3\n4\n", tmp_path)


def test_task_list_of_106_days(tmp_path: Path) -> None:
    log = seeds.optimus_logs()[0].decode().replace("38.362", "99999999999")
    with pytest.raises(SimulationError, match="106 days"):
        TARGETS["optimus-log"].run(log.encode(), tmp_path)


def test_hours_on_many_ranks(tmp_path: Path) -> None:
    row = "embedding_layer -1 10000000000000 NONE 0 1 NONE 0 1 NONE 0 100"
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 all_gpus: 8192"
    path = tmp_path / "w.txt"
    path.write_text(f"{header}\n1\n{row}\n")
    report = stepsim.simulate(path, "hgx-h100").report
    assert report.stages[0].forward_ps == 10**16


def test_escapes_in_a_result(tmp_path: Path) -> None:
    data = seeds.results()[1].replace(b'"ring"', b'"\\u001b[31mring"')
    TARGETS["result-json"].run(data, tmp_path)


DAMAGE = [
    "UPDATE result SET step_time_ps = NULL",
    "UPDATE result SET id = -1 WHERE id = 0",
    "UPDATE axis SET quantity = 'x'",
    "UPDATE axis SET stride = 0",
    "UPDATE axis SET name = CAST(x'c5ff' AS TEXT)",
    "UPDATE axis SET length = 99",
    "DELETE FROM axis_value",
    "DROP TABLE axis",
]


@pytest.mark.parametrize("statement", DAMAGE)
def test_damaged_database(statement: str, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "made.sqlite"
    path.write_bytes(seeds.sweeps()[0])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StepsimError, match=r"damaged|no such table"):
        TARGETS["sweep-database"].run(path.read_bytes(), tmp_path)
