"""The library for Parquet files, which not everybody has."""

from pathlib import Path
from typing import Any

from stepsim.base.errors import StepsimError


def parquet_library(path: Path, error: type[StepsimError]) -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet; raises `error` naming the file without them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise error(
            f"{path}: Parquet needs pyarrow: install it with pip install 'stepsim[parquet]'"
        ) from None
    return pyarrow, parquet
