"""The command line, a module per command or two. Heavy imports wait until a command runs."""

from stepsim.cli.root import app, main

__all__ = ["app", "main"]
