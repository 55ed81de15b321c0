"""Makes every figure in docs/figures, and docs/figures.md, which shows them with their commands.

python docs/make_figures.py            all of them
python docs/make_figures.py bubbles    those whose file names begin so, and what they need
"""

import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs/figures"
GALLERY = ROOT / "docs/figures.md"
RUN = "from stepsim.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Figures that one command makes: their files, what they show, and the sweep it reads."""

    files: tuple[str, ...]
    title: str
    text: str
    command: str
    needs: str = ""


def picture(name: str, title: str, text: str, command: str, needs: str = "") -> Picture:
    """A picture of one command; `{name}` in it stands for the file."""
    files = tuple(each if "." in each else f"{each}.png" for each in name.split())
    for file in files:
        command = command.replace("FIGURE", f"docs/figures/{file}", 1)
    return Picture(files=files, title=title, text=text, command=command, needs=needs)


GPT = "workloads/gpt_1024.txt -t hgx-h100"
SMALL = "workloads/gpt_tp4.txt -t hgx-h100 --npus 64 --pp 4"
SCHEDULES = "--set schedule=1f1b,interleaved:2,interleaved:4,zb-h1,zb-v"

PICTURES = (
    picture(
        "gpt_1024",
        "A step",
        "A row is a stage, a box an action with the number of its microbatch, grey is idle. The "
        "black line above the rows is the critical path; what runs after the pipeline is per step.",
        f"stepsim simulate {GPT} --plot FIGURE",
    ),
    picture(
        "gpt_64_stages",
        "A step of 64 stages",
        "Numbers and borders are left out where there is no room for them.",
        "stepsim simulate workloads/gpt_1024.txt -t hgx-h100 --npus 4096 --pp 64 -m 128 "
        "--plot FIGURE",
    ),
    picture(
        "compare",
        "Schedules",
        "All on one time axis. Later chunks of a stage are lighter.",
        f"stepsim compare {GPT} --schedules 1f1b,interleaved:4,zb-h1,zb-v --plot FIGURE",
    ),
    picture(
        "bubbles",
        "Bubbles over microbatches",
        "Share of the pipeline in which a rank runs no action. Thin lines are the closed forms "
        "(P-1)/(m+P-1), and (P-1)/(vm+P-1) for v chunks, of even stages and free messages.",
        f"stepsim sweep {GPT} --set microbatches=16..128:8 {SCHEDULES} --breakdown "
        "--db bubbles.sqlite --plot FIGURE --plot-kind bubble",
    ),
    picture(
        "bubbles_column.svg",
        "The same for a column of a paper",
        "3.3 inches wide with type of 8 points; text stays text.",
        "stepsim sweep bubbles.sqlite --plot FIGURE --plot-kind bubble --style column",
        needs="bubbles.png",
    ),
    picture(
        "breakdown",
        "Where the step goes",
        "Mean over ranks; a stack's height is the step time. Work is at the bottom, then what is "
        "exposed of communication, then waiting.",
        "stepsim sweep bubbles.sqlite --plot FIGURE --plot-kind breakdown",
        needs="bubbles.png",
    ),
    picture(
        "noise",
        "Noise of one job",
        "",
        f"stepsim noise {SMALL} -m 8 --task 0.03 --samples 2000 --plot FIGURE",
    ),
    picture(
        "sensitivity",
        "What one per cent is worth",
        "",
        "stepsim simulate workloads/moe_128.txt --sensitivity -t hgx-h100 --plot FIGURE",
    ),
    picture(
        "sweep_lines",
        "Step time over bandwidth",
        "",
        f"stepsim sweep {GPT} --set 'fabric.bandwidth=50..800 Gbps:64' {SCHEDULES} "
        "--db lines.sqlite --plot FIGURE",
    ),
    picture(
        "sweep_map",
        "A map",
        "The fastest cell is bold.",
        f"stepsim sweep {SMALL} -m 8 --set 'fabric.bandwidth=50..800 Gbps:5 log' "
        "--set compute_scale=0.25..1:4 --set schedule=1f1b,interleaved:2 --db map.sqlite "
        "--plot FIGURE",
    ),
    picture(
        "collective",
        "A collective",
        "The broad band is what is chosen automatically.",
        "stepsim collective --kind all_reduce --size 64KiB..1GiB:x4 --ranks 0-63 -t hgx-h100 "
        "--algorithm auto,ring,double_binary_tree,nvls --plot FIGURE",
    ),
    picture(
        "topology",
        "A topology",
        "",
        "stepsim inspect rail-only-h100 --npus 32 --plot FIGURE",
    ),
    picture(
        "replay",
        "A measured run above its replay",
        "Only stage 0 was traced.",
        "stepsim simulate workloads/measured/megatron_moe_rank0.txt --plot FIGURE",
    ),
)


def gallery() -> str:
    """The text of docs/figures.md."""
    parts = [
        "# Figures\n\nEvery command that draws takes a file as `.png`, `.svg` or `.pdf` and a "
        "`--style`:\n\n"
        "| style | width | type | for |\n|---|---|---|---|\n"
        "| `screen` | 9 in | 10 pt | screens and slides, the default |\n"
        "| `column` | 3.3 in | 8 pt | one column of a two-column paper |\n"
        "| `page` | 7 in | 8 pt | across a page |\n\n"
        "Figures have their final width: include them unscaled. Text in `.svg` and `.pdf` is text "
        "(TrueType in PDF). Colours mean the same everywhere: an action, a part of the step, a "
        "schedule, an algorithm. A test holds that readers with any of the three colour "
        "blindnesses can tell them apart. The same input gives the same bytes.\n\n"
        "All of these are made by `python docs/make_figures.py`, which writes this page too.\n"
    ]
    for each in PICTURES:
        images = "\n\n".join(f"![{each.title}](figures/{file})" for file in each.files)
        text = f"{each.text}\n\n" if each.text else ""
        parts.append(f"## {each.title}\n\n{text}{images}\n\n```sh\n{each.command}\n```\n")
    return "\n".join(parts)


def main(names: list[str]) -> None:
    """Run the commands in a folder of their own, so that their databases leave nothing behind."""
    wanted = {
        file
        for each in PICTURES
        for file in (*each.files, each.needs)
        if not names or any(mine.startswith(tuple(names)) for mine in each.files)
    }
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("workloads", "docs"):
            (Path(folder) / name).symlink_to(ROOT / name)
        for each in PICTURES:
            if wanted.intersection(each.files):
                print(each.command, flush=True)
                program = [sys.executable, "-c", RUN, *shlex.split(each.command)[1:]]
                subprocess.run(program, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    GALLERY.write_text(gallery())


if __name__ == "__main__":
    main(sys.argv[1:])
