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
# # Which plan for a 70B and for a mixture of experts, on 256 to 4,096 GPUs?
#
# A plan is every degree (tensor, context, pipeline, data, expert), the microbatch size,
# interleaving and recomputation. `stepsim.plan` looks at all that divide the job: memory refuses
# plans, bounds rule them out, and the best of the rest are simulated exactly on the network. Here
# for two models and a global batch of 1,024 sequences of 8,192 tokens.

# %%
import matplotlib.pyplot as plt
from IPython.display import Markdown

import stepsim

MODELS = ("llama-3.1-70b", "mixtral-8x22b")
GPUS = (256, 1024, 4096)
JOB = {"global_batch": 1024, "sequence": 8192}

found = {
    (model, gpus): stepsim.plan(model, "hgx-h100", gpus=gpus, runs=3, **JOB)
    for model in MODELS
    for gpus in GPUS
}

# %% [markdown]
# ## The best plan of each size
#
# `memory` is what the fullest rank takes of its 80 GiB. What limits a search says what would have
# to give for a faster plan.

# %%
rows = [
    "| model | GPUs | best plan | step, s | tokens/s/GPU | memory |",
    "|---|---|---|---|---|---|",
]
for (model, gpus), search in found.items():
    best = search.plans[0]
    degrees = {name: getattr(best.plan, name) for name in ("tp", "cp", "pp", "dp", "ep")}
    words = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
    step, rate = best.step_time_ps / 1e12, best.tokens_per_s_per_npu
    rows.append(
        f"| {model} | {gpus:,} | {words} | {step:.2f} | {rate:,.0f} | {best.memory_share:.0%} |"
    )
Markdown("\n".join(rows))

# %% [markdown]
# ## What more GPUs buy
#
# The batch stays, so every GPU gets fewer sequences: pipelines have fewer microbatches to fill
# them, gradients are reduced as often over less compute. The dashed line is a step that shrinks
# as the GPUs grow.

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for model in MODELS:
    steps = [found[model, gpus].plans[0].step_time_ps / 1e12 for gpus in GPUS]
    (line,) = axes.plot(GPUS, steps, marker="o", label=model)
    ideal = [steps[0] * GPUS[0] / gpus for gpus in GPUS]
    axes.plot(GPUS, ideal, linestyle="--", color=line.get_color())
axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="step, s")
axes.set_xticks(GPUS, [f"{gpus:,}" for gpus in GPUS])
axes.set_title("Best plan of each size on H100, global batch 1,024 x 8,192 tokens")
axes.legend()
plt.show()

# %% [markdown]
# ## From the plan to the training script
#
# The best plan comes as Megatron-LM's arguments.

# %%
for model in MODELS:
    print(model, *found[model, 1024].megatron_arguments, sep="\n  ")

# %% [markdown]
# ## Conclusion

# %%
kept = {
    model: found[model, GPUS[-1]].plans[0].tokens_per_s_per_npu
    / found[model, GPUS[0]].plans[0].tokens_per_s_per_npu
    for model in MODELS
}
Markdown(
    f"From {GPUS[0]} to {GPUS[-1]:,} GPUs at the same batch, {MODELS[0]} keeps "
    f"{kept[MODELS[0]]:.0%} of its tokens per second and GPU, {MODELS[1]} "
    f"{kept[MODELS[1]]:.0%}. The best degrees change "
    "with the size, so a plan that was good on few GPUs is not one for many."
)
