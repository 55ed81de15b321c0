"""Write what is made from the program: reference, types of options, coverage.

python tools/reference.py            write docs/reference/*.md, docs/coverage.md and keywords.py
python tools/reference.py --check    say which of them are not current
"""

import argparse
import sys
from pathlib import Path

from cli_page import cli_pages
from coverage_page import coverage_page
from keywords import keywords_module
from schema_page import schemas_page

DOCS = Path(__file__).resolve().parents[1] / "docs"


def outputs() -> dict[Path, bytes]:
    """Every file of the reference that is made here, and what it should hold."""
    found = {
        DOCS / "reference" / "schemas.md": schemas_page().encode(),
        DOCS / "coverage.md": coverage_page().encode(),
        DOCS.parent / "src" / "stepsim" / "face" / "keywords.py": keywords_module(),
    }
    for name, text in cli_pages().items():
        found[DOCS / "reference" / "cli" / f"{name}.md"] = text.encode()
    return found


def main() -> None:
    """Write the files, or say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = [
        path for path, data in outputs().items() if not path.exists() or path.read_bytes() != data
    ]
    for path in stale:
        print(path.relative_to(DOCS.parent))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(outputs()[path])
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
