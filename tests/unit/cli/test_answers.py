"""What is printed first: an answer of three lines, then what was assumed, all on one screen."""

import json
import re
from itertools import product
from pathlib import Path

import pytest
from helpers import Run, few
from pairs import in_turn

from stepsim.base.units import format_time_ps
from stepsim.explain.report import ResultDocument
from stepsim.files.load import public_names
from stepsim.views.answer import answer_of
from stepsim.views.step import bubble_words, step_tables

MOST_LINES = 12
WORKLOADS = ("gpt_1024.txt", "gpt_tp4.txt", "moe_128.txt")
RUNS = ("megatron_moe_rank0.txt", "llama_pp8_a40.txt")
MACHINES = ("hgx-h100", "tpu-v4", "dgx-v100")
QUICK = ("llama-3-8b", "deepseek-v3", "gpt2")
DEGREES = (("--pp", "1"), ("--pp", "2"), ("--pp", "8", "--mbs", "1"))
PIPED = ("-t", "hgx-h100", "--npus", "64", "--pp", "4", "-m", "8")


def result(path: Path) -> ResultDocument:
    """What `simulate --json` wrote."""
    return ResultDocument.from_plain(json.loads(path.read_text()), str(path))


@pytest.mark.parametrize(
    ("model", "degrees"), few(product(public_names(), DEGREES), *in_turn(QUICK, DEGREES))
)
def test_a_model_is_answered_on_one_screen(
    run: Run, tmp_path: Path, model: str, degrees: tuple[str, ...]
) -> None:
    job = ("simulate", model, "--gpus", "64", "--tp", "1", *degrees, "-t", "hgx-h100")
    code, out, err = run(*job)
    assert code == 0, err
    lines = [*out.splitlines(), *err.splitlines()]
    assert len(lines) <= MOST_LINES
    assert all(line == line.strip() for line in lines)
    assert lines[0].startswith(f"{model} on 64 H100 (hgx-h100)")
    assert re.match(r"[\d.]+ (us|ms|s) per step", lines[1])
    assert re.search(r"memory [\d.]+( \w+)? of 80 GiB", lines[1])
    assert "next: " in lines[-1]
    assert ("does not fit" in lines[1]) == ("it does not fit" in err)


@pytest.mark.parametrize(
    ("name", "topology"), few(product(WORKLOADS, MACHINES), *in_turn(WORKLOADS, MACHINES))
)
def test_a_workload_is_answered_on_one_screen(
    run: Run, workloads: Path, tmp_path: Path, name: str, topology: str
) -> None:
    document = tmp_path / "step.json"
    job = ("simulate", workloads / name, "-t", topology)
    code, out, err = run(*job)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) + len(err.splitlines()) <= MOST_LINES
    assert run(*job, "-q", "--json", document)[1] == out
    found = result(document)
    assert lines[1].startswith(f"{format_time_ps(found.step_time_ps)} per step")
    assert f" {found.npus:,} {'NPUs' if topology == 'tpu-v4' else 'GPUs'} " in lines[0]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_answered_on_one_screen(run: Run, workloads: Path, name: str) -> None:
    code, out, err = run("simulate", workloads / "measured" / name)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) + len(err.splitlines()) <= MOST_LINES
    assert re.match(r"[\d.]+ ms (per step|explained by leaf modules)", lines[1])
    assert "measured" in lines[1]


def test_parts_stand_by_size_and_small_ones_not_at_all(
    run: Run, workloads: Path, tmp_path: Path
) -> None:
    document = tmp_path / "step.json"
    assert run("simulate", workloads / "moe_128.txt", "-q", "--json", document)[0] == 0
    found = result(document)
    words, _, bubble = answer_of(found).parts.partition("   bubble")
    shares = [float(text.rsplit(" ", 1)[1].rstrip("%")) for text in words.split("   ")]
    assert shares == sorted(shares, reverse=True)
    assert min(shares) >= 0.5
    assert 97 < sum(shares) <= 100.5
    assert "unequal stages" in bubble


def test_equal_stages_have_the_bubble_of_their_schedule(run: Run, tmp_path: Path) -> None:
    """Two layers less on a stage are waited for, whatever the schedule."""
    size = "--gpus 16 --pp 4 --tp 4 --vpp 1 --mbs 1 --global-batch 32 --seq 4096"
    job = ("simulate", "llama-3-8b", *size.split(), "-t", "hgx-h100", "-q")
    unequal = []
    for number, layout in enumerate(("Et*8|t*8|t*8|t*8L", "Et*8|t*2|t*11|t*11L")):
        document = tmp_path / f"{number}.json"
        assert run(*job, "--layout", layout, "--json", document)[0] == 0
        found = result(document)
        own, rest = re.findall(r"([\d.]+)%", bubble_words(found))[1:]
        assert float(own) + float(rest) == pytest.approx(100 * found.bubble_fraction, abs=0.11)
        unequal.append(float(rest))
    assert unequal[0] < 10 < unequal[1]


def test_full_shows_every_table_and_show_one(run: Run, workloads: Path, tmp_path: Path) -> None:
    job = ("simulate", workloads / "gpt_tp4.txt", *PIPED)
    code, out, err = run(*job, "--full", "--json", tmp_path / "step.json")
    assert code == 0
    found = result(tmp_path / "step.json")
    tables = step_tables(found, 4)
    assert "memory" not in tables, "a workload file does not say it"
    assert all(text in err for text in (*found.warnings, *found.notes))
    answer = run(*job, "-q")[1]
    assert out.startswith(answer)
    every = out.split()
    for name in tables:
        code, shown, _ = run(*job, "-q", "--show", name)
        assert code == 0
        assert shown.startswith(answer)
        assert len(shown) > len(answer)
        assert set(shown.split()) <= set(every), name
    for time in (*found.breakdown_ps.values(), *(stage.forward_ps for stage in found.stages)):
        assert not time or format_time_ps(time) in out
    assert "memory: not known of this step" in run(*job, "--show", "memory")[1]


def test_what_is_left_out_is_counted(run: Run, moe: Path) -> None:
    """The weightiest is said first; what groups of one rank do not send is for those who ask."""
    job = ("simulate", moe, "-t", "hgx-a100", "--npus", "512", "-m", "2", "--p2p", "overlap")
    every = [text for text in run(*job, "--full")[2].splitlines() if text.startswith("warning")]
    shown = run(*job)[2].splitlines()
    said = [text for text in shown if text.startswith("warning")]
    assert said == every[: len(said)]
    more = [text for text in shown if text.endswith(" more with --full")]
    assert len(every) - len(said) == sum(int(text.split()[0]) for text in more)
    worths = [float(found[1]) for text in said if (found := re.search(r"takes ([\d.]+)%", text))]
    assert worths == sorted(worths, reverse=True)
    assert not any("transfer nothing" in text for text in said)


def test_compare_marks_the_best_that_fits(run: Run, tmp_path: Path) -> None:
    size = "--gpus 16 --pp 4 --tp 1 --mbs 1 --global-batch 64 --seq 8192"
    job = ("compare", "llama-3.1-8b", *size.split(), "-t", "hgx-h100", "-q")
    code, out, _ = run(*job, "--schedules", "gpipe,1f1b,zb-v", "--json", tmp_path / "all.json")
    assert code == 0
    lines = out.splitlines()
    header = next(line for line in lines if line.startswith("schedule "))
    rows = lines[lines.index(header) + 1 :]
    fits = [row for row in rows if " yes " in row]
    assert fits
    assert rows[: len(fits)] == fits, "those that do not fit stand below"
    assert rows[0].endswith("best")
    assert lines[1].startswith(f"{rows[0].split()[0]} is the fastest that fits")
    assert "zero-bubble, torch" in out
    names = [each["name"] for each in json.loads((tmp_path / "all.json").read_text())["candidates"]]
    assert names == ["gpipe", "1f1b", "zb-v"], "documents keep the order asked for"


def test_compare_says_what_less_bubble_costs(run: Run, tmp_path: Path) -> None:
    size = "--gpus 512 --tp 4 --pp 8 --mbs 1 --global-batch 512 --seq 8192 -t hgx-h100 -q"
    written = ("--schedules", "dualpipe-v,zb-v", "--json", tmp_path / "two.json")
    code, out, _ = run("compare", "llama-3-70b", *size.split(), *written)
    best, least = json.loads((tmp_path / "two.json").read_text())["candidates"]
    assert code == 0
    assert best["step_time_ps"] < least["step_time_ps"]
    assert best["bubble_fraction"] > least["bubble_fraction"]
    assert f"zb-v has less bubble ({least['bubble_fraction']:.1%}), more exposed tp: " in out


@pytest.mark.parametrize(
    ("layers", "chunks"), [(32, ["2", "4"]), (24, ["2", "3"]), (28, ["7"]), (44, [])]
)
def test_usual_schedules_divide_the_layers(
    run: Run, tmp_path: Path, layers: int, chunks: list[str]
) -> None:
    """Four stages of so many layers: the chunks divide those of a stage."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "intermediate_size": 2816,
        "vocab_size": 32000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    size = "--gpus 4 --pp 4 --tp 1 --global-batch 16 --mbs 1 --seq 1024"
    job = ("compare", tmp_path / "config.json", *size.split(), "-t", "hgx-h100", "-q")
    code, out, err = run(*job, "--json", "-")
    assert code == 0, err
    names = [each["name"] for each in json.loads(out)["candidates"]]
    usual = [f"interleaved:{n}" for n in chunks]
    assert names == ["1f1b", *usual, "zb-h1", "zb-v", "dualpipe-v"]
