"""What every command prints: no number is cut at any width, and --csv holds the rows."""

import csv
import json
import re
from io import StringIO
from pathlib import Path

import pytest
from helpers import Run, few
from published_rows import table

from stepsim.cli.calibrate import calibrate_command
from stepsim.cli.commands import COMMANDS
from stepsim.documents.table import Shown, Table
from stepsim.show import terminal as shown_on_terminal

WIDTHS = (40, 60, 80, 200)
SMALL = "workloads/gpt_tp4.txt -t hgx-h100 --npus 16 --pp 4 -q"
JOB = f"{SMALL} -m 4"
SWEEP = f"sweep {SMALL} --set microbatches=4,8"
RUN = "workloads/measured/megatron_moe_rank0.txt"
PLAN = "plan llama-3.1-8b --gpus 8 --global-batch 8 --seq 1024 --fix tp=8 --runs 1 -q"
FIRST = {
    "diff": [f"simulate {JOB} --json one.json", f"simulate {JOB} --schedule gpipe --json two.json"],
    "sweep, its database": [f"{SWEEP} --db first.sqlite"],
    "plan --check": [f"{PLAN} --toml plan.toml"],
    "improve": [f"simulate {JOB} --kineto profile"],
    "calibrate trace": [f"simulate {JOB} --kineto profile"],
}
"""What has to run before a command."""
LINES = {
    "simulate": f"simulate {JOB} --full",
    "compare": f"compare {JOB} --schedules 1f1b,gpipe",
    "inspect": "inspect workloads/gpt_tp4.txt -t hgx-h100 -q",
    "diff": "diff one.json two.json",
    "explain": "explain steps.log --config llama-2-7b --npus 8 --global-batch 8 -q",
    "collective": "collective --kind all_reduce --size 1KiB..1MiB:x32 -t hgx-h100",
    "simulate --sensitivity": f"simulate {JOB} --sensitivity",
    "list": "list devices",
    "noise": f"noise {JOB} --samples 9",
    "validate": f"validate {RUN} -q",
    "what-if": f"what-if {RUN} --schedule interleaved:2 --layers 8 -q",
    "improve": "improve profile -q",
    "sweep": f"{SWEEP} --db sweep.sqlite",
    "sweep, its database": "sweep first.sqlite",
    "plan": PLAN,
    "plan --check": "plan plan.toml --check --max-step 10s -q",
    "calibrate trace": "calibrate trace profile -o trace.toml -q",
    "calibrate runs": f"calibrate runs {RUN} -o runs.toml -q",
    "calibrate model": "calibrate model steps.csv -q",
    "calibrate nccl": "calibrate nccl nccl.txt --kind all_reduce -q",
}
NO_TABLE = {"report", "serve", "schema", "calibrate"}
"""Commands that print none: they write files, wait, or need a GPU."""
NO_CSV = {"simulate", "noise"}
"""Commands whose CSV holds other rows: none, spans, samples."""


def nccl_tests() -> str:
    """What nccl-tests prints of eight ranks: 20 us and 200 GB/s."""
    lines = [f"#  Rank  {i} Group  0 Pid 1 on node1 device  {i} [0x00] H100" for i in range(8)]
    lines.append("#  size  count  type  redop  root" + "  time  algbw  busbw  #wrong" * 2)
    for power in range(10, 31):
        size = 2**power
        time = 20 + size * 1.75 / 200e3
        rates = f"{size / time / 1e3:.2f} {size / time / 1e3 * 1.75:.2f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {time:.2f} {rates} {time:.2f} {rates}")
    return "\n".join(lines)


@pytest.fixture
def here(tmp_path: Path, workloads: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with workloads and measurements, where commands run."""
    (tmp_path / "workloads").symlink_to(workloads)
    (tmp_path / "nccl.txt").write_text(nccl_tests())
    steps = (f"steps: {n} loss: 8.1 iter time (s): 2.{n} samples/sec: 4\n" for n in (1, 2, 3))
    (tmp_path / "steps.log").write_text("".join(steps))
    table(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_tried() -> None:
    of_groups = {f"calibrate {name}" for name in calibrate_command.commands}
    more = {"sweep, its database", "plan --check", "simulate --sensitivity"}
    assert LINES.keys() | NO_TABLE == COMMANDS.keys() | of_groups | more


def numbers(shown: Table) -> set[str]:
    """The texts of the numbers that a table shows."""
    columns = shown.in_words
    rows = [row for part in shown.ends(shown.rows) for row in part]
    return {column.text(row[i]) for i, _, column in columns if column.number for row in rows}


def lines_of(shown: list[Shown], width: int, *, terminal: bool) -> list[str]:
    """What is printed at a width, without colours."""
    out = StringIO()
    console = shown_on_terminal.Paper(out, width if terminal else None)
    shown_on_terminal.print_shown(console, shown)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def fits(line: str, width: int) -> bool:
    """Whether a line fits, or ends in one word that cannot be broken."""
    return len(line) <= width or len(line.rsplit(maxsplit=1)[-1]) > width - 16


@pytest.mark.parametrize("command", few(LINES, *LINES))
def test_no_number_is_cut_and_csv_holds_the_rows(
    run: Run, here: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in FIRST.get(command, ()):
        assert run(*line.split())[0] == 0
    shown: list[Shown] = []
    monkeypatch.setattr(
        shown_on_terminal, "print_shown", lambda _, tables, *more: shown.extend(tables)
    )
    asked = [] if command in NO_CSV else ["--csv", "rows.csv"]
    code, _, err = run(*LINES[command].split(), *asked)
    monkeypatch.undo()
    assert code == 0, err
    tables = [each for each in shown if isinstance(each, Table)]
    assert tables
    for terminal, widths in ((True, WIDTHS), (False, (80,))):
        for width in widths:
            lines = lines_of(shown, width, terminal=terminal)
            text = "\n".join(lines)
            assert "…" not in text
            assert all(number in text for each in tables for number in numbers(each))
            assert not terminal or all(fits(line, width) for line in lines)
    if asked:
        with (here / "rows.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) > 1
        assert len(set(map(len, rows))) == 1
        for cell in (cell for row in rows for cell in row if cell.startswith(("(", "[", "{"))):
            json.loads(cell)
