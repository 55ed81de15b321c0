"""`pytest benchmarks --small`: every benchmark once, on little, to see that it works."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--small", action="store_true", help="run everything once, on little")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--small"):
        config.option.benchmark_disable = True
        if "--small" not in sys.argv:  # a worker of pytest-xdist
            sys.argv.append("--small")
