"""A server that is used for long holds no more than one that has just begun."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

WORKLOADS = Path(__file__).parents[3] / "workloads"
MEMORY = Path("/proc/self/status")
_MOST_MIB = 50


@pytest.fixture
def server() -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", "stepsim", "serve", "--no-show", "--port", "0"]
    files = [str(WORKLOADS / name) for name in ("gpt_tp4.txt", "moe_128.txt")]
    with subprocess.Popen([*command, *files], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.pid, process.stdout.readline().rpartition(" ")[2].strip()
        process.terminate()


def resident_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("VmRSS")) / 1024


def ask(address: str, number: int) -> None:
    """One of the changes of a page: mostly slid numbers, now and then another structure."""
    state = {
        "workload": ("moe_128.txt", "gpt_tp4.txt", "llama-3.2-1b")[number // 7 % 3],
        "topology": ("hgx-h100", "hgx-a100")[number // 50 % 2],
        "fabric.bandwidth": f"{20 + number} GB/s",
        "microbatches": str(4 + number // 5 % 24),
        "noise.compute": "0.05",
    }
    if state["workload"] == "llama-3.2-1b":
        state |= {"npus": "16", "device": "h100"}
    kind = ("shown", "live", "live", "live", "worth")[number % 5]
    body = json.dumps({"kind": kind, "tab": f"{number % 3}", "number": number, "state": state})
    headers = {"X-Stepsim": "1", "Content-Type": "application/json"}
    with urlopen(Request(f"{address}answer", body.encode(), headers), timeout=60) as reply:
        assert "error" not in json.loads(reply.read())


@pytest.mark.slow
@pytest.mark.skipif(not MEMORY.exists(), reason="the system does not tell the memory of a process")
def test_a_thousand_changes_leave_nothing_behind(server: tuple[int, str]) -> None:
    process, address = server
    for number in range(1, 11):
        ask(address, number)
    early = resident_mib(process)
    for number in range(11, 1001):
        ask(address, number)
    late = resident_mib(process)
    print(f"resident after 10 changes {early:.0f} MiB, after 1,000 {late:.0f} MiB")
    assert late - early <= _MOST_MIB
