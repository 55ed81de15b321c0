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
# # 1F1B or interleaved?
#
# Interleaving gives every rank several thin slices of the model instead of one thick one. Bubbles
# shrink, messages multiply, and more activations are alive. When is it worth it? We take
# `gpt_1024.txt` (1,024 GPUs, 16 stages) through both.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown

import stepsim
from stepsim.explore.sweep import Grid, Study, SweepTable, open_for_reading, parse_axis, run_sweep
from stepsim.views.sweep import plot_sweep

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
OUT = Path(tempfile.mkdtemp())
SCHEDULES = ("1f1b", "interleaved:2", "interleaved:4", "interleaved:8")

workload = stepsim.load_workload(ROOT / "workloads/gpt_1024.txt")
fabric = stepsim.load_topology("hgx-h100")

# %% [markdown]
# ## One step under each

# %%
comparison = stepsim.compare(workload, SCHEDULES, fabric)
print("schedule        step      speed-up  bubble  exposed p2p  live activations")
for name, result in comparison.valid:
    report = result.report
    exposed = report.breakdown_ps["exposed_pp"] / report.step_time_ps
    print(
        f"{name:14} {result.step_time_s:6.2f} s {comparison.speedup(result):9.3f} "
        f"{report.bubble_fraction:8.1%} {exposed:11.2%} {report.peak_activations:12d}"
    )

# %%
shown = stepsim.compare(workload, ["1f1b", "interleaved:4"], fabric)
shown.plot(OUT / "timelines.png")
Image(OUT / "timelines.png")

# %% [markdown]
# Lighter shades are later chunks. The stages start earlier and end later in the step, so the grey
# triangles at both ends shrink. Live activations are counted in chunks: with v chunks each is 1/v
# of a stage's.
#
# ## It depends on the microbatches
#
# With more microbatches there is less bubble to win.

# %%
study = Study(
    workload=workload,
    topology=fabric,
    grid=Grid(
        axes=(
            parse_axis("microbatches=16,32,64,128"),
            parse_axis("schedule=" + ",".join(SCHEDULES[:3])),
        )
    ),
)
run_sweep(study, OUT / "microbatches.sqlite", jobs=1)
with open_for_reading(OUT / "microbatches.sqlite") as store:
    table = SweepTable(store=store)
    plot_sweep(table, OUT / "bubbles.png", kind="bubble")
    (times,) = table.fastest(table.axes, ["step_time_ps"])
    counts = table.axis("microbatches").values
speedups = {count: row[0] / row[2] for count, row in zip(counts, times, strict=True)}
for count, speedup in speedups.items():
    print(f"{count:4d} microbatches: interleaved:4 is {speedup:.3f} times as fast as 1f1b")
Image(OUT / "bubbles.png")

# %% [markdown]
# ## And hardly on the network, here
#
# A message is 16 MiB, a chunk computes for tens of milliseconds. Even on a slow fabric
# point-to-point messages are not what interleaving costs.

# %%
slow = stepsim.load_topology("hgx-a100")
for topology in (fabric, slow):
    again = stepsim.compare(workload, ["1f1b", "interleaved:4"], topology)
    (_, plain), (_, interleaved) = again.valid
    p2p = interleaved.report.breakdown_ps["exposed_pp"] / 1e12
    print(
        f"{topology.name:9} speed-up {again.speedup(interleaved):.3f}, "
        f"exposed p2p {p2p:.3f} s of {interleaved.step_time_s:.2f} s"
    )

# %% [markdown]
# ## Conclusion

# %%
live = {name: result.report.peak_activations for name, result in comparison.valid}
best = max(comparison.valid, key=lambda each: comparison.speedup(each[1]))
assert speedups[16] > 1.4
assert speedups[128] < 1.15
Markdown(
    f"With as many microbatches as stages, **{best[0]} is {comparison.speedup(best[1]):.2f} times "
    f"as fast** as 1F1B; interleaved:4 wins {speedups[16]:.2f} there and only "
    f"{speedups[128]:.2f} at 128 microbatches. Interleave where microbatches are few, and check "
    f"the memory: 1F1B keeps {live['1f1b']} activations of a whole stage, interleaved:4 keeps "
    f"{live['interleaved:4']} of a quarter ({live['interleaved:4'] / 4:.0f} stages' worth)."
)
