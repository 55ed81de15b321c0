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
# # Can the simulation be trusted?
#
# Two logs of real runs lie in `workloads/measured/`: the trace of one rank of a Megatron-LM job
# with four pipeline stages, and the log of a Llama on eight A40 that holds only the times of leaf
# modules. We replay the first and hold it against what was measured; the second shows what
# happens when a log does not say enough.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown

import stepsim
from stepsim.runs.leaf import simulate_leaves
from stepsim.show.figures.timelines import plot_timelines
from stepsim.views.timelines import drawn_profile, drawn_step

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
OUT = Path(tempfile.mkdtemp())

# %% [markdown]
# ## What the trace holds

# %%
run = stepsim.load_run(ROOT / "workloads/measured/megatron_moe_rank0.txt")
degrees = run.run.degrees
print(f"{degrees.pp} stages, {degrees.microbatches} microbatches, order of {run.schedule.label}")
print(f"pipeline {run.pipeline_ps / 1e9:.1f} ms, step {run.step_ps / 1e9:.1f} ms")
print(f"bubble of rank 0: {run.bubble(run.ranks[0]):.1%}")

# %% [markdown]
# Only stage 0 was traced. How long the others compute has to be inferred from how long rank 0
# waits for them in the first eight microbatches; the rest of the step is then predicted.

#
# ## The replay
#
# The stage times go through stepsim's own 1F1B order, its blocking messages and its engine.

# %%
result = stepsim.simulate_run(run)
for warning in result.report.warnings:
    print("-", warning)
pipeline_error = result.report.pipeline_time_ps / run.pipeline_ps - 1
step_error = result.report.step_time_ps / run.step_ps - 1
bubble = result.ranks.bubbles[0].total / result.report.pipeline_time_ps
print(f"pipeline {result.report.pipeline_time_ps / 1e9:6.1f} ms  {pipeline_error:+.2%}")
print(f"step     {result.report.step_time_ps / 1e9:6.1f} ms  {step_error:+.2%}")
print(f"bubble   {bubble:.1%} of rank 0, measured {run.bubble(run.ranks[0]):.1%}")

# %%
runs = [drawn_profile(run.run), drawn_step(result.timeline, result.report)]
plot_timelines(runs, OUT / "replay.png")
Image(OUT / "replay.png")

# %% [markdown]
# Above is the trace of rank 0, below the simulated step of all four stages. They agree to about a
# percent. That is a test of orders, messages and waits, not of compute times: those were measured.
#
# ## What would change it
#
# A replay that is right can be asked what if.

# %%
found = {
    "64 microbatches": stepsim.what_if(run, microbatches=64),
    "zb-h1": stepsim.what_if(run, schedule="zb-h1"),
}
for name, each in found.items():
    print(f"{name:16} {each.speedup:.3f} times as fast per microbatch", *each.notes, sep="  ")

# %% [markdown]
# ## A log that does not say enough
#
# The Llama log times leaf modules: linear layers, embeddings. It holds no attention, no norms, no
# backward and no host time. stepsim simulates what is there and says how much it explains.

# %%
leaves = stepsim.load_run(ROOT / "workloads/measured/llama_pp8_a40.txt")
share = simulate_leaves(leaves).report.pipeline_time_ps / leaves.step_ps
print(f"measured step {leaves.step_ps / 1e12:.3f} s, explained by leaf modules: {share:.0%}")

# %% [markdown]
# ## Conclusion

# %%
assert abs(pipeline_error) < 0.02
assert abs(step_error) < 0.02
assert share < 0.6
Markdown(
    "With stage 0 as measured, and the others as its waits in half of the step tell, the replay is "
    f"off by **{abs(pipeline_error):.1%}** for the pipeline and {abs(step_error):.1%} for the "
    "step: the model of schedule and messages holds. It is as good as its compute times: a log of "
    f"leaf modules explains only {share:.0%} of its step, and a prediction from such a file would "
    "be short by the rest. Before you trust a prediction, replay a run of yours (`stepsim simulate "
    "TRACE`, `stepsim validate RUN...`)."
)
