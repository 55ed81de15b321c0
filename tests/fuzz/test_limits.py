"""Numbers at the ends of what can be written: a clean error or a finite result."""

import json
from pathlib import Path

import pytest
from fuzz import seeds
from fuzz.checks import finite
from helpers import Run
from pairs import in_turn

HUGE = ("1000000000000", "9223372036854775808", "1" + "0" * 30, "-1", "0", "1e308", "nan", "inf")
COUNTS = ("--microbatches", "--npus", "--pp", "--chunks", "--global-batch", "--microbatch-size")
FACTORS = ("--compute-scale", "--memory-limit")
TIMES = ("--host-overhead", "--get-batch", "--loss-time")
SIZES = ("--dp-bucket", "--activation-size")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "w.txt"
    path.write_text(seeds.SMALL_WORKLOAD)
    return path


def ends(code: int, out: str, err: str) -> None:
    """A command ends with a finite result, or with one error."""
    assert code in (0, 2)
    assert "Traceback" not in err
    if code == 0:
        finite(json.loads(out, parse_constant=_no_number))
    else:
        assert out == ""
        assert "rror" in err


def _no_number(text: str) -> object:
    raise AssertionError(f"{text} in JSON")


OPTIONS = (
    *(f"{option}={{}}" for option in (*COUNTS, *FACTORS)),
    *(f"{option}={{}}ns" for option in TIMES),
    *(f"{option}={{}}B" for option in SIZES),
    "--slow=0:{}",
    "--schedule=interleaved:{}",
)


@pytest.mark.parametrize(("option", "value"), in_turn(OPTIONS, HUGE))
def test_options(option: str, value: str, run: Run, small: Path) -> None:
    ends(*run("simulate", small, "-q", "--json", "-", option.format(value)))


SIZES_OF_MODELS = {
    "--microbatch-size": ("1", "1024", "1048576", "1048577", "1000000000", "9" * 18, "9" * 40),
    "--sequence": ("64", "65536", "1073741824", "1073741825", "9" * 18, "9" * 40),
    "--activation-size": ("1B", "1TB", f"{2**59}B", f"{2**60}B", f"{2**63 - 1}B", "9000000TB"),
}


@pytest.mark.parametrize("option", SIZES_OF_MODELS)
def test_larger_sizes_of_a_model_hold_more_or_are_refused(option: str, run: Run) -> None:
    held = list[int]()
    for value in SIZES_OF_MODELS[option]:
        job = ("gpt2", "-t", "hgx-h100", "--compute-scale", "1e-6", option, value)
        code, out, err = run("simulate", *job, "-q", "--json", "-")
        ends(code, out, err)
        assert "Warning" not in err
        if code == 0:
            held.append(json.loads(out)["throughput"]["memory_bytes"])
        else:
            assert err.count("\n") == 1, err
    assert held == sorted(held)
    assert 2 <= len(held) < len(SIZES_OF_MODELS[option])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pp: 1 ", "pp: 16777216 "),
        ("group: 1", "group: 16777216"),
        ("pp_comm: 1024", "pp_comm: 9223372036854775807"),
        (" 2000 ALL", " 10000000000000 ALL"),
        ("ALLREDUCE 4096", "ALLREDUCE 9223372036854775807"),
        ("REDUCESCATTER 4096", "ALLTOALL 9223372036854775807"),
        ("ga: 1", "ga: 16777216"),
    ],
)
def test_workloads(old: str, new: str, run: Run, small: Path) -> None:
    assert old in seeds.SMALL_WORKLOAD
    small.write_text(seeds.SMALL_WORKLOAD.replace(old, new))
    for contention in ("none", "fair"):
        ends(*run("simulate", small, "-q", "--json", "-", "--contention", contention))


BANDWIDTHS = ("1 B/s", "0.001 B/s", "999999999 TB/s", "inf")
LATENCIES = ("0 ps", "1 ps", "9223372 s")


@pytest.mark.parametrize(("bandwidth", "latency"), in_turn(BANDWIDTHS, LATENCIES))
def test_topologies(bandwidth: str, latency: str, run: Run, small: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    text = seeds.EXPLICIT.replace("1 GB/s", bandwidth).replace("1 us", latency)
    path.write_text(text)
    ends(*run("simulate", small, "-q", "--json", "-", "-t", path))
    collective = ("collective", "--kind", "all_reduce", "--size", "1TiB", "-t", path)
    ends(*run(*collective, "--json", "-"))


PROBES = ("0", "1", "9223372036854775807", "1..9223372036854775807:x1e9")


@pytest.mark.parametrize(("size", "ranks"), in_turn(PROBES, ("0", "0,1", "0-4194304")))
def test_collectives(size: str, ranks: str, run: Run) -> None:
    probe = ("--kind", "broadcast", "--size", size, "--ranks", ranks)
    ends(*run("collective", *probe, "--json", "-"))


def test_no_bandwidth_where_no_time_passes(run: Run) -> None:
    for size, ranks in (("0", "0-7"), ("1MiB", "0")):
        code, out, _ = run("collective", "--kind", "all_reduce", "--size", size, "--ranks", ranks)
        assert code == 0
        assert "inf" not in out
        assert out.splitlines()[5].split()[-3:-1] == ["-", "-"]


def test_large_pipelines_are_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    code, _, err = run("inspect", "1f1b", "--csv", path, "--pp", "4096", "-m", "65536")
    assert code == 2
    assert "expected a product of at most" in err
    assert not path.exists()


def test_hopeless_sweep_is_one_error(run: Run, small: Path) -> None:
    database = small.with_name("sweep.sqlite")
    command = ("sweep", small, "--set", "microbatches=1,2", "--db", database, "-q")
    code, out, err = run(*command, "--slow", "99:2")
    assert (code, out) == (2, "")
    assert err == "error: no scenario can run: slow is 99: expected ranks 0 to 1\n"
    assert not database.exists()
    code, _, _ = run(*command, "--slow", "1:2")
    assert code == 0
