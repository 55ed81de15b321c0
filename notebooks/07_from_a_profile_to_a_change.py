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
# # From a profile to the change that helps most
#
# You have a folder with a profiler's trace of every rank, and the question which single change
# would make the step shorter. `improve` replays the recorded step once per change. To be able to
# check its answer we make the traces ourselves: a simulated job of 64 GPUs of which one is slow,
# written as PyTorch's profiler would have written it.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import Markdown

import stepsim
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.traces.kineto_write import write_kineto

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
FOLDER = Path(tempfile.mkdtemp()) / "run"


def simulated(**wrong: object) -> stepsim.Result:
    return stepsim.simulate(
        ROOT / "workloads/gpt_tp4.txt", "hgx-h100", npus=64, pp=4, microbatches=8, **wrong
    )


step = simulated(slow="37:1.3")
files = write_kineto(profile_of_step(step.timeline, source="run"), FOLDER)
print(f"{len(files)} traces, step {step.step_time_s * 1e3:.1f} ms")

# %% [markdown]
# ## What the traces say
#
# From here on we only use the folder. A profile is columns of operations; its replay follows the
# order on streams, the collectives that ranks meet in, and both ends of every message.

# %%
profile = stepsim.load_profile(FOLDER)
found = stepsim.stragglers(profile)
slowdown, rank = max(zip(found.by_rank, (each.rank for each in profile.ranks), strict=True))
print(f"{len(profile.events):,} operations, replayed within {abs(found.errors).max():.4%}")
print(f"slowest: rank {rank}, which alone makes the step {slowdown:.2f} times as long")

# %% [markdown]
# ## Which change helps most
#
# Every bar is a replay of the whole job with one change made. A gain is what reaches the end of the
# step, so gains do not add up.

# %%
table = stepsim.improve(profile)
figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
changes = table.changes[::-1]
axes.barh([change.name for change in changes], [100 * change.gain for change in changes])
axes.set_xlabel("shorter step, %")
axes.set_title(
    f"Recorded step of {table.measured_ps / 1e9:.1f} ms on 64 GPUs: what one change gains"
)
plt.show()

# %% [markdown]
# ## Is that true?
#
# Here we can know: we simulate the job without the slow GPU.

# %%
best, healthy = table.changes[0], simulated()
print(f"{best.name}: predicted {best.step_ps} ps, simulated {healthy.report.step_time_ps} ps")
assert best.name == "replace-rank-37"
assert best.step_ps == healthy.report.step_time_ps

for change in table.changes:
    print(f"{change.name}: if {change.assumed}")

# %% [markdown]
# ## Conclusion

# %%
Markdown(
    f"The traces alone name rank {rank}: replacing it makes the step {best.gain:.1%} "
    f"shorter. The predicted {best.step_ps / 1e9:.1f} ms are what the healthy job takes, to the "
    f"picosecond. The next change, {table.changes[1].name}, gains {table.changes[1].gain:.1%}. "
    "With real traces a prediction is as good as what its change assumes."
)
