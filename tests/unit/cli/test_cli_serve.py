"""`stepsim serve`, and `--set`, which repeats what the page shows."""

import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from helpers import Run
from unit.cli.test_cli import written

COMMAND = [sys.executable, "-c", "from stepsim.cli import main; main()", "serve", "--no-show"]


def test_the_server_says_where_it_is_and_ends_when_asked(moe: Path) -> None:
    command = [*COMMAND, str(moe), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=20) as page:
            assert b"stepsim explorer" in page.read()
        server.terminate()
        try:
            _, err = server.communicate(timeout=20)
        finally:
            server.kill()
    assert server.returncode in (143, -15)
    assert "Traceback" not in err


def test_an_address_in_use_is_one_line(run: Run, moe: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run("serve", moe, "--no-show", "--port", port)
    assert code == 2
    assert f"port {port} of 127.0.0.1" in err


def test_a_set_number_is_the_edited_file(run: Run, moe: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "topologies" / "hgx-h100.toml").read_text()
    edited = tmp_path / "slow.toml"
    edited.write_text(text.replace('bandwidth = "400 Gbps"', 'bandwidth = "100 Gbps"'))
    assert edited.read_text() != text
    steps = []
    for given in (("-t", edited), ("-t", "hgx-h100", "--set", "fabric.bandwidth=100 Gbps")):
        steps.append(written(run, "simulate", moe, *given)["step_time_ps"])
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fabric.bandwidth", "expected NAME=VALUE"),
        ("fabric.speed=1", "is no number of a topology"),
        ("wire.bandwidth=1 Gbps", "has no links 'wire'"),
        ("fabric.bandwidth=0 Gbps", "fabric.bandwidth: "),
    ],
)
def test_a_wrong_number_is_one_line(run: Run, moe: Path, text: str, said: str) -> None:
    code, _, err = run("simulate", moe, "-t", "hgx-h100", "--set", text)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_a_number_set_twice_is_refused(run: Run, moe: Path) -> None:
    twice = ("--set", "fabric.bandwidth=1 Gbps", "--set", "fabric.bandwidth=2 Gbps")
    code, _, err = run("simulate", moe, "-t", "hgx-h100", *twice)
    assert code == 2
    assert "given twice" in err
