"""Launch scripts as a shell reads them, without running anything."""

from stepsim.files.shell.script import Command, read_script

__all__ = ["Command", "read_script"]
