"""Lists every text that a user can read: what src says in words, a line each, for a careful reader.

    python tools/messages.py [--only REGEX] > messages.txt

A text is a string of at least three words that is not a docstring. Fields of f-strings stand as
`{name}`, strings beside each other are one. Lines are FILE:LINE, a tab and the text. Whoever reads
the list marks what a stranger does not understand, and mends it where it stands.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WORDS = re.compile(r"[A-Za-z]{2,}\S* \S*[A-Za-z]\S* \S*[A-Za-z]")


def text_of(node: ast.expr) -> str | None:
    """A string as it is read, with `{expression}` for what is filled in; None for other nodes."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) or "" for value in values)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case _:
            return None


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings below a node with their lines, the longest only, without docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        text = text_of(child) if isinstance(child, ast.expr) else None
        if not isinstance(child, ast.expr) or text is None:
            yield from texts(child)
        elif _WORDS.search(text):
            yield child.lineno, " ".join(text.split())


def main() -> None:
    """Print the texts of all modules whose path has the pattern."""
    parser = argparse.ArgumentParser(description="List every text that a user can read.")
    parser.add_argument("--only", default="", help="a regex, searched in the paths")
    only = re.compile(parser.parse_args().only)
    for path in sorted((ROOT / "src").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if only.search(name):
            for line, text in texts(ast.parse(path.read_text(encoding="utf-8"))):
                print(f"{name}:{line}\t{text}")


if __name__ == "__main__":
    main()
