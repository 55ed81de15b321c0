"""Commands, the modules they are in, and what the list of commands says of them.

The list needs no more, so that it is there before any module of a command is read.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Listed(NamedTuple):
    """A command, or a group of them: its module in `stepsim.cli`, and its help in a line."""

    module: str
    help: str
    is_group: bool = False


COMMANDS: Mapping[str, Listed] = MappingProxyType(
    {
        "simulate": Listed(
            "simulate",
            "Simulate one training step of a model or workload, or replay a measured run or "
            "profile.",
        ),
        "compare": Listed("compare", "Compare pipeline schedules on a model or a workload FILE."),
        "inspect": Listed(
            "inspect",
            "Print what stepsim understands of a workload, a topology, a measured run or a "
            "profile.",
        ),
        "convert": Listed(
            "convert",
            "Write a schedule as a CSV file in torch's pipeline notation.",
        ),
        "diff": Listed(
            "compare",
            "Explain the difference of two step times: settings, components, stages, links.",
        ),
        "collective": Listed(
            "collective",
            "Price one collective: time, algbw and busbw (as in nccl-tests), and the links it "
            "uses.",
        ),
        "sensitivity": Listed(
            "sensitivity",
            "Print the step time saved by 1 % of each bandwidth, latency and compute time of FILE.",
        ),
        "noise": Listed(
            "sensitivity",
            "Print the distribution of the step time of FILE when task times vary at random.",
        ),
        "validate": Listed(
            "measured",
            "Compare measured RUNs, or a table of measured steps, with their simulation.",
        ),
        "what-if": Listed(
            "measured",
            "Simulate a measured RUN with another schedule, balance or bandwidth.",
        ),
        "improve": Listed(
            "profiles.improve",
            "Rank changes of a profiled RUN by the step time that they save.",
        ),
        "sweep": Listed(
            "sweep",
            "Simulate every combination of some axes and write each result to a database.",
        ),
        "sweep-report": Listed(
            "sweep",
            "Print, export or draw the results of a sweep, also while it is running.",
        ),
        "plan": Listed(
            "plan",
            "Search the plans of a MODEL on some GPUs, and simulate the best ones exactly.",
        ),
        "check": Listed(
            "plan",
            "Simulate a PLAN and compare it with a budget; exit code 1 if it exceeds the budget.",
        ),
        "serve": Listed(
            "serve",
            "Open an explorer in the browser: change a number and see the new step.",
        ),
        "export-site": Listed(
            "serve",
            "Write the explorer as a folder of files that any web server can offer.",
        ),
        "report": Listed(
            "documents",
            "Write a stored result as one HTML page; --report of other commands shows more of a "
            "step.",
        ),
        "schema": Listed(
            "documents",
            "Print the JSON Schema of a file format, e.g. for an editor that checks topology "
            "files.",
        ),
        "measure": Listed(
            "measure",
            "Time kernels of a MODEL on this machine's GPU, and write a device file (needs torch).",
        ),
        "doctor": Listed("doctor", "Check this installation; exit code 1 if something is broken."),
        "calibrate": Listed(
            "calibrate",
            "Fit the numbers of a machine to measurements.",
            is_group=True,
        ),
    }
)
"""Commands by name, in the order of the help."""
