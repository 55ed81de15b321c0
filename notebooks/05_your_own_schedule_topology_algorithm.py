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
# # Your own schedule, topology and algorithm
#
# What is not in stepsim can be brought along: a schedule is a table of actions, a topology a graph
# of links, an algorithm a table of times. None of them needs a change of stepsim. We build one of
# each and see what it does to `gpt_tp4.txt` on 64 GPUs in 4 pipeline stages.

# %%
import tempfile
from pathlib import Path

import networkx as nx
from IPython.display import Image, Markdown

import stepsim
from stepsim.views.topologies import draw_topology

ROOT = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "workloads").is_dir())
OUT = Path(tempfile.mkdtemp())
STAGES, MICROBATCHES = 4, 8
JOB = {"npus": 64, "pp": STAGES, "microbatches": MICROBATCHES}

workload = stepsim.load_workload(ROOT / "workloads/gpt_tp4.txt")

# %% [markdown]
# ## A topology
#
# Sixteen boxes of four GPUs, each with a switch, and a core switch above. Every box has two cables
# to the core, but one has lost one of them. A networkx graph says it: nodes are NPUs and switches,
# an edge of a `DiGraph` is a link in one direction, or `count` equal ones.

# %%
INSIDE = {"link_class": "inside", "bandwidth": "100 GB/s", "latency": "200 ns"}
UPLINK = {"link_class": "uplink", "bandwidth": "25 GB/s", "endpoint_latency": "2 us"}


def boxes(cables: tuple[int, ...], latency: str = "500 ns") -> nx.DiGraph:
    fabric = nx.Graph(name="boxes", source="made up for this notebook", node_size=4)
    fabric.add_node("core", kind="switch")
    for box, count in enumerate(cables):
        fabric.add_node(f"box{box}", kind="switch")
        fabric.add_edge(f"box{box}", "core", count=count, latency=latency, **UPLINK)
        for npu in range(4 * box, 4 * box + 4):
            fabric.add_node(f"npu{npu}", kind="npu")
            fabric.add_edge(f"npu{npu}", f"box{box}", **INSIDE)
    return fabric.to_directed()  # every cable works both ways


whole, broken = (stepsim.load_topology(boxes((2,) * 15 + (last,))) for last in (2, 1))
draw_topology(broken, OUT / "boxes.png")
Image(OUT / "boxes.png")

# %%
for kind in ("all_reduce", "all_to_all"):
    times = [stepsim.collective_time(each, kind, 1 << 28, range(64)) for each in (whole, broken)]
    print(f"{kind:10} of 256 MiB: whole {times[0] * 1e3:6.2f} ms, broken {times[1] * 1e3:6.2f} ms")
base, hurt = (stepsim.simulate(workload, each, **JOB) for each in (whole, broken))
cost = hurt.step_time_s / base.step_time_s
print(f"the step takes {cost:.4f} times as long with the broken cable")

# %% [markdown]
# A lone all-reduce sends one stream through every uplink and does not need the second cable; the
# all-to-all needs all there is. In the step the four NPUs of a box reduce their gradients in four
# groups at the same time, which share its uplinks: there the cable is missed.
#
# ## A schedule
#
# A schedule file has a line per rank with its actions in order: `2F0` is the forward of microbatch
# 0 in stage 2, `B` a backward. Ours is 1F1B with more forwards ahead: rank r starts with twice as
# many warm-up forwards, so that messages have more time to arrive.


# %%
def deep(rank: int) -> str:
    ahead = min(2 * (STAGES - 1 - rank), MICROBATCHES)
    tokens = [f"{rank}F{i}" for i in range(ahead)]
    for i in range(MICROBATCHES):
        tokens += [f"{rank}F{ahead + i}"] * (ahead + i < MICROBATCHES) + [f"{rank}B{i}"]
    return ",".join(tokens) + "\n"


schedule = OUT / "deep.csv"
schedule.write_text("".join(map(deep, range(STAGES))))
print(schedule.read_text())

# %% [markdown]
# We try both schedules on the boxes as they are, and with boxes so far from each other that a hop
# to the core takes 5 ms.

# %%
far = stepsim.load_topology(boxes((2,) * 16, latency="5 ms"))
gains = {}
for name, topology in (("near", whole), ("far", far)):
    comparison = stepsim.compare(workload, ["1f1b", str(schedule)], topology, p2p="overlap", **JOB)
    (_, plain), (_, ours) = comparison.valid
    gains[name] = plain.step_time_s / ours.step_time_s
    for result in (plain, ours):
        report = result.report
        print(
            f"{name:5} {report.schedule:9} step {result.step_time_s * 1e3:7.1f} ms, "
            f"bubble {report.bubble_fraction:.1%}, live activations {report.peak_activations}"
        )
comparison.plot(OUT / "schedules.png")
Image(OUT / "schedules.png")

# %% [markdown]
# This is the far network. 1F1B has to wait for every message; with more forwards ahead there is
# other work meanwhile. On the near network the same schedule only costs memory.
#
# ## An algorithm
#
# Suppose gradients were sent in 8 bits instead of 32: a reduce-scatter of S bytes over n ranks
# moves a quarter of (n-1)/n S, but every rank reads and writes its gradients once more to
# quantise them. A cost function like this becomes a table of times, as a micro-benchmark would
# print. Where the table knows a group, its times replace the model's.

# %%
LATENCY_S, BANDWIDTH, MEMORY = 20e-6, 50e9, 2e12
replicas = base.plan.dp


def seconds(size_bytes: int) -> float:
    moved = (replicas - 1) / replicas * size_bytes / 4
    return LATENCY_S + moved / BANDWIDTH + 2 * size_bytes / MEMORY


def dp_time(result: stepsim.Result) -> float:
    return sum(use.count * use.time_ps for use in result.report.comms if use.group == "dp") / 1e12


rows = ["machine,source,kind,ranks,nodes,bytes,time_us"]
for power in range(10, 36):
    time_us = seconds(1 << power) * 1e6
    rows.append(f"8-bit,formula,reduce_scatter,{replicas},{replicas},{1 << power},{time_us}")
(OUT / "eight_bit.csv").write_text("\n".join(rows) + "\n")
reduced = stepsim.simulate(workload, whole, comm_table=OUT / "eight_bit.csv", **JOB)
for result in (base, reduced):
    for use in result.report.comms:
        if use.group == "dp":
            print(
                f"{use.kind:14} {use.ranks} ranks {use.size_bytes / 2**30:6.2f} GiB "
                f"{use.time_ps / 1e9:8.2f} ms  {', '.join(use.algorithms)}"
            )

# %% [markdown]
# ## Conclusion

# %%
more = ours.report.peak_activations / plain.report.peak_activations
before, after = (1e3 * dp_time(result) for result in (base, reduced))
assert cost >= 1
assert gains["far"] > gains["near"]
assert after < before
Markdown(
    f"One lost cable of 32 makes the step **{cost - 1:.1%}** longer. More forwards ahead make it "
    f"**{gains['far']:.2f} times** as fast where boxes are far apart, {gains['near']:.2f} times "
    f"where they are near, and keep {more:.1f} times the activations alive. Gradients in 8 bits "
    f"take **{after:.0f} ms instead of {before:.0f}**, which makes the step "
    f"{base.step_time_s / reduced.step_time_s:.3f} times as fast. All three are what "
    "anybody can write: a graph of links, a CSV of actions, a CSV of times."
)
