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
# # How fast does the network have to be?
#
# Links are much of what one cluster costs more than another. `gpt_tp4.txt` is a GPT with tensor
# parallel 4; we train it on 64 GPUs in 4 pipeline stages and ask which bandwidth of the
# fabric between the nodes is enough, and what the links inside a node are worth.

# %%
import tempfile
from pathlib import Path

import numpy as np
from IPython.display import Image, Markdown

import stepsim
from stepsim.explore.noise.draws import NoiseModel, sweep_noise
from stepsim.explore.sweep import Grid, Study, SweepTable, open_for_reading, parse_axis, run_sweep
from stepsim.options import StepOptions
from stepsim.views.sweep import plot_sweep

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
OUT = Path(tempfile.mkdtemp())
JOB = {"npus": 64, "pp": 4, "microbatches": 8}

workload = stepsim.load_workload(ROOT / "workloads/gpt_tp4.txt")
network = stepsim.load_topology("hgx-h100")
base = stepsim.simulate(workload, network, **JOB)
base

# %% [markdown]
# ## Two bandwidths at once
#
# A sweep takes axes and simulates every combination. Bandwidths change how long tasks take, not
# which tasks there are, so all 441 networks share one task graph and are evaluated together.

# %%
axes = ("fabric.bandwidth=12.5..800 Gbps:21 log", "nvlink.bandwidth=25..900 GB/s:21 log")
study = Study(
    workload=workload,
    topology=network,
    grid=Grid(axes=tuple(parse_axis(text) for text in axes)),
    options=StepOptions(**JOB),
)
print(run_sweep(study, OUT / "network.sqlite", jobs=1))
with open_for_reading(OUT / "network.sqlite") as store:
    table = SweepTable(store=store)
    plot_sweep(table, OUT / "map.png")
    (times,) = table.fastest(table.axes, ["step_time_ps"]) / 1e12
    fabric_axis, nvlink_axis = table.axes
Image(OUT / "map.png")

# %% [markdown]
# Colour is step time, the star is the fastest. Where colours change from left to right only, the
# fabric alone matters; where they hardly change, time is spent on compute and host.
#
# ## How much is enough?
#
# With the links inside the node as they are sold (450 GB/s), the least fabric bandwidth with which
# the step is at most 5 % slower than with the fastest:

# %%
column = int(np.argmin(np.abs(np.array(nvlink_axis.values, dtype=float) - 450e9)))
curve = times[:, column]
enough = int(np.flatnonzero(curve <= 1.05 * curve[-1])[0])
gbps = [f"{8 * float(value) / 1e9:.0f} Gbps" for value in fabric_axis.values]
print(f"{gbps[enough]}: {curve[enough]:.3f} s, fastest {curve[-1]:.3f} s")

# %% [markdown]
# ## Would we see the difference?
#
# Steps of a real job differ. We let every task vary by 3 % and every transfer by 10 % (coefficients
# of variation) and draw 200 steps at each bandwidth. Nine of ten steps lie in the band.

# %%
study = Study(
    workload=workload,
    topology=network,
    grid=Grid(axes=(parse_axis("fabric.bandwidth=50..800 Gbps:5 log"),)),
    options=StepOptions(**JOB),
)
bands = sweep_noise(study, model=NoiseModel(task=0.03, communication=0.1), samples=200)
for drawn, gbps_of in zip(bands.scenarios, study.grid.axes[0].values, strict=True):
    low, high = drawn.p5_ps / 1e12, drawn.p95_ps / 1e12
    print(f"{8 * float(gbps_of) / 1e9:.0f} Gbps: {low:.3f} to {high:.3f} s")
last, fastest = bands.scenarios[-2:]
apart = last.p5_ps > fastest.p95_ps
print("the bands of the two fastest networks are apart" if apart else "the bands overlap")

# %% [markdown]
# ## Conclusion

# %%
slow_node = times[-1, 0] / times[-1, -1]
slow_fabric = times[0, -1] / times[-1, -1]
assert slow_fabric > 1.5
assert 0 < enough < len(curve) - 1
Markdown(
    f"A fabric of **{gbps[enough]}** per GPU is within 5 % of one of "
    f"{gbps[-1]}. The slowest fabric makes the step {slow_fabric:.1f} times as long, the "
    f"slowest links inside the node {slow_node:.1f} times. Where the map no longer changes, "
    "money for links is better spent elsewhere; and a difference between two networks can only be "
    "measured where their bands are apart."
)
