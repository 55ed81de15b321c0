"""A plan as a TOML file: a model, a topology, and the options of `stepsim simulate`."""

from collections.abc import Mapping
from pathlib import Path

from stepsim.base.documents import TomlTable, toml_text
from stepsim.base.errors import PlanError
from stepsim.files.reading import read_toml
from stepsim.files.writing import write_whole


class PlanFile(TomlTable, frozen=True, kw_only=True, omit_defaults=True):
    """A plan file: `options` by name, as people type them."""

    model: str
    topology: str
    options: dict[str, str | int | float | bool]


def read_plan(path: Path) -> PlanFile:
    """The plan in a file; raises PlanError naming the entry at fault."""
    return read_toml(path, PlanFile, PlanError, "plan")


def write_plan(path: Path, model: str, topology: str, options: Mapping[str, str]) -> None:
    """Write a plan; raises OutputError."""
    found = PlanFile(model=model, topology=topology, options=dict(options))
    write_whole(path, toml_text(found).encode())
