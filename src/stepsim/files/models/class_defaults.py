"""What classes of configurations fix where a published one leaves a size out."""

from collections.abc import Mapping
from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.files.reading import parse_toml, read_text, shipped_folder


def class_defaults(architecture: str) -> Mapping[str, Any]:
    """Sizes by key that the class of an architecture has in transformers; none for others."""
    path = shipped_folder("models") / "class_defaults.toml"
    classes = parse_toml(read_text(path, WorkloadError, "class defaults", "TOML"))
    known = (sizes for sizes in classes.values() if architecture in sizes["architectures"])
    return {key: size for key, size in next(known, {}).items() if key != "architectures"}
