# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How many microbatches does a 16-stage pipeline need?
#
# `gpt_1024.txt` is a GPT on 1,024 GPUs, written by AICB: tensor parallel 8, data parallel 8, 16
# pipeline stages, and 16 microbatches per step. We simulate the step as it is, see where its time
# goes, and find out what more microbatches buy.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown

import stepsim
from stepsim.explore.sweep import Grid, Study, SweepTable, open_for_reading, parse_axis, run_sweep
from stepsim.views.sweep import plot_sweep

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
OUT = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The step as it is
#
# A workload and a network are all it takes. Nothing runs on a GPU: the compute times are those of
# the file, the times of messages and collectives follow from the network.

# %%
workload = stepsim.load_workload(ROOT / "workloads/gpt_1024.txt")
fabric = stepsim.load_topology("hgx-h100")
base = stepsim.simulate(workload, fabric)
base

# %%
base.plot(OUT / "step.png")
Image(OUT / "step.png")

# %% [markdown]
# A row is a pipeline stage, time runs to the right. Grey is idle: every stage waits for its first
# microbatch, waits between the last forward and the first backward, and waits for the others at
# the end. The thin black line is the critical path, the chain of tasks that sets the step time.

# %%
parts = base.report.breakdown_ps
step = base.report.step_time_ps
for part, time in parts.items():
    if time:
        print(f"{part:12} {time / 1e12:7.3f} s  {time / step:6.1%}")
assert sum(parts.values()) == step

# %% [markdown]
# The parts add up to the step, to the picosecond. Half of it is bubble.
#
# ## More microbatches
#
# With P even stages, m microbatches and free messages the bubble takes (P-1)/(m+P-1) of the
# pipeline (GPipe, Megatron-LM). We sweep m for three schedules and draw what is simulated over
# these closed forms.

# %%
study = Study(
    workload=workload,
    topology=fabric,
    grid=Grid(
        axes=(
            parse_axis("microbatches=16,32,64,128"),
            parse_axis("schedule=1f1b,interleaved:4,zb-v"),
        )
    ),
    breakdown=True,
)
run_sweep(study, OUT / "microbatches.sqlite", jobs=1)
with open_for_reading(OUT / "microbatches.sqlite") as store:
    table = SweepTable(store=store)
    plot_sweep(table, OUT / "bubbles.png", kind="bubble")
    plot_sweep(table, OUT / "parts.png", kind="breakdown")
Image(OUT / "bubbles.png")

# %% [markdown]
# The thick lines lie above the thin ones: real stages are not even, the first and last carry the
# embedding and the head, and messages take time.

# %%
Image(OUT / "parts.png")

# %% [markdown]
# Steps get longer, of course: they do more work. What counts is the time per microbatch.

# %%
seconds = {}
for count in (16, 32, 64, 128):
    result = stepsim.simulate(workload, fabric, microbatches=count)
    seconds[count] = result.step_time_s / count
    bubble = result.report.bubble_fraction
    print(f"{count:4d} microbatches: {seconds[count] * 1e3:6.1f} ms each, bubble {bubble:.1%}")

# %% [markdown]
# ## Conclusion

# %%
exposed = sum(time for part, time in parts.items() if part.startswith("exposed"))
idle = parts["head"] + parts["inner"] + parts["tail"]
gain = seconds[16] / seconds[128]
assert gain > 1.5
assert idle > 10 * exposed
Markdown(
    f"At 16 microbatches each costs **{gain:.2f} times** what it costs at 128, because idle time "
    f"takes {idle / step:.0%} of the step. Communication that compute does not hide takes "
    f"{exposed / step:.1%}: a faster network cannot win more than that. If training allows a "
    "larger batch, use more microbatches; if it does not, interleave (notebook 03); buy the faster "
    "network last."
)
