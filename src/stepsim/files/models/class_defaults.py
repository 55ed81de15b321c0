"""What classes of configurations fix where a published one leaves a size out."""

from collections.abc import Mapping
from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.files.reading import parse_toml, read_text, shipped_folder


def class_defaults(architecture: str) -> Mapping[str, Any]:
    """Sizes by key that the class of an architecture has in transformers; none for others."""
    path = shipped_folder("models") / "class_defaults.toml"
    text = read_text(path, WorkloadError, "class defaults", "TOML")
    for table in text.split("\n["):  # parsing all of them takes longer than a step
        if f'"{architecture}"' in table:
            (sizes,) = parse_toml(f"[{table}").values()
            return {key: size for key, size in sizes.items() if key != "architectures"}
    return {}
