"""What stepsim says while it works, to those who listen: records of Python's `logging`."""

import sys


def said(module: str, text: str, *values: object) -> None:
    """Say something in a module's name, with `values` in place of `%d` and `%s`.

    Nobody listens where nobody has imported `logging`, which takes longer than all that is said.
    """
    if logging := sys.modules.get("logging"):
        logging.getLogger(module).info(text, *values, stacklevel=2)
