"""The folder of a page without a server: its program answers as the engine does."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stepsim
from stepsim.base.errors import OutputError
from stepsim.serve.alone import PACKAGES, WHEELS, write_site

WORKLOADS = Path(__file__).parents[3] / "workloads"
MOE = WORKLOADS / "moe_128.txt"
STATE = {"workload": "moe_128.txt", "topology": "hgx-h100", "fabric.bandwidth": "100 Gbps"}
INSIDE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} does not exist in a browser")

ABSENT = set(sys.argv[2].split(","))
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
from stepsim.serve.alone import make_ask
ask = make_ask([sys.argv[1] + "/workloads/moe_128.txt"])
for line in sys.stdin:
    print(ask(line))
"""
ABSENT = "typer,rich,bokeh,jinja2,tornado,matplotlib,pyarrow,distributed"


def test_the_folder_answers_with_what_a_browser_has(tmp_path: Path) -> None:
    files = write_site(tmp_path / "site", [MOE])
    assert [path.name for path in files] == ["index.html", "explorer.js", "boot.js", "stepsim.zip"]
    with zipfile.ZipFile(files[3]) as archive:
        archive.extractall(tmp_path / "program")
    asked = [{"kind": kind, "state": STATE} for kind in ("choices", "live", "step", "worth")]
    asked += [{"kind": "step", "state": {"workload": "none"}}]
    ran = subprocess.run(
        [sys.executable, "-I", "-c", INSIDE, str(tmp_path / "program"), ABSENT],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        check=True,
    )
    choices, live, step, worth, wrong = map(json.loads, ran.stdout.splitlines())
    network = stepsim.load_topology("hgx-h100", numbers={"fabric.bandwidth": "100 Gbps"})
    expected = stepsim.simulate(MOE, network).report.step_time_ps
    assert choices["works"][0] == ["moe_128.txt", "workload"]
    assert live["step_ps"] == step["step_ps"] == expected
    assert worth["table"]["rows"]
    assert "no workload named 'none'" in wrong["error"]


def test_the_same_folder_twice_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_site(tmp_path / name, [MOE]) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    page, boot = first[0].read_text(), first[2].read_text()
    assert page.index("pyodide.js") < page.index("boot.js") < page.index("explorer.js")
    assert all(f'"{name}"' in boot for name in (*PACKAGES, *WHEELS))


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(OutputError, match="not empty"):
        write_site(tmp_path, [MOE])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="two files have one name"):
        write_site(tmp_path / "site", [MOE, MOE])
