"""Commands, the modules they are in, and what the list of commands says of them.

The list needs no more, so that it is there before any module of a command is read.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class _Listed(NamedTuple):
    """A command, or a group of them: its module in `stepsim.cli`, and its help in a line."""

    module: str
    help: str
    is_group: bool = False


COMMANDS: Mapping[str, _Listed] = MappingProxyType(
    {
        "simulate": _Listed(
            "simulate",
            "Simulate one training step of a model or workload, or replay a measured run or "
            "profile.",
        ),
        "compare": _Listed("compare", "Compare pipeline schedules on a model or a workload FILE."),
        "inspect": _Listed(
            "inspect",
            "Print what stepsim understands of a workload, a topology, a measured run or a "
            "profile.",
        ),
        "convert": _Listed(
            "convert",
            "Write a schedule as a CSV file in torch's pipeline notation.",
        ),
        "diff": _Listed(
            "compare",
            "Explain the difference of two step times: settings, components, stages, links.",
        ),
        "collective": _Listed(
            "collective",
            "Price one collective: time, algbw and busbw (as in nccl-tests), and the links it "
            "uses.",
        ),
        "sensitivity": _Listed(
            "sensitivity",
            "Print the step time saved by 1 % of each bandwidth, latency and compute time of FILE.",
        ),
        "noise": _Listed(
            "sensitivity",
            "Print the distribution of the step time of FILE when task times vary at random.",
        ),
        "validate": _Listed(
            "measured",
            "Compare measured RUNs, or a table of measured steps, with their simulation.",
        ),
        "what-if": _Listed(
            "measured",
            "Simulate a measured RUN with another schedule, balance or bandwidth.",
        ),
        "improve": _Listed(
            "profiles.improve",
            "Rank changes of a profiled RUN by the step time that they save.",
        ),
        "sweep": _Listed(
            "sweep",
            "Simulate every combination of some axes and write each result to a database.",
        ),
        "sweep-report": _Listed(
            "sweep",
            "Print, export or draw the results of a sweep, also while it is running.",
        ),
        "plan": _Listed(
            "plan",
            "Search the plans of a MODEL on some GPUs, and simulate the best ones exactly.",
        ),
        "check": _Listed(
            "plan",
            "Simulate a PLAN and compare it with a budget; exit code 1 if it exceeds the budget.",
        ),
        "serve": _Listed(
            "serve",
            "Open an explorer in the browser: change a number and see the new step.",
        ),
        "export-site": _Listed(
            "serve",
            "Write the explorer as a folder of files that any web server can offer.",
        ),
        "report": _Listed(
            "documents",
            "Write a stored result as one HTML page; --report of other commands shows more of a "
            "step.",
        ),
        "schema": _Listed(
            "documents",
            "Print the JSON Schema of a file format, e.g. for an editor that checks topology "
            "files.",
        ),
        "measure": _Listed(
            "measure",
            "Time kernels of a MODEL on this machine's GPU, and write a device file (needs torch).",
        ),
        "doctor": _Listed("doctor", "Check this installation; exit code 1 if something is broken."),
        "calibrate": _Listed(
            "calibrate",
            "Fit the numbers of a machine to measurements.",
            is_group=True,
        ),
    }
)
"""Commands by name, in the order of the help."""
