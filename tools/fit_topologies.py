"""Fit the protocols of the shipped topologies to measured collectives, and write them.

python tools/fit_topologies.py FOLDER [NAME...]    FOLDER holds kernels/ and measured/

Each is one `stepsim calibrate nccl FILE... --source TEXT --topology NAME [--start NAME] -o FILE`,
begun without the protocols that the topology has.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from stepsim.files.collectives.fits import write_fitted
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.measured.calibration.accuracy import fit_with_accuracy
from stepsim.measured.calibration.protocols import with_library
from stepsim.network.topology.dimension import PLAIN

TOPOLOGIES = Path(__file__).resolve().parents[1] / "topologies"
ONE_NODE = "kernels/nccl_one_node.csv"
AZURE = "measured/nccl/nccl_allreduce_a100_1_128gpus.csv"
VTRAIN = "measured/nccl/nccl_allreduce_vtrain_a100_v100.csv"
TWO_NODES = "measured/nccl/nccl_allreduce_h100_2nodes.csv"
H800 = "measured/nccl/echo_cluster_microbench.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Files and the machines in them that a topology is fitted to, and where the fit starts."""

    files: tuple[str, ...]
    source: str
    start: str | None = None


FITS = {
    "hgx-a100": Fit(files=(ONE_NODE, AZURE, VTRAIN), source="A100"),
    "hgx-h100": Fit(files=(ONE_NODE, TWO_NODES), source="H100"),
    "rail-only-h100": Fit(files=(ONE_NODE, TWO_NODES), source="H100"),
    "spectrum-x-h100": Fit(files=(ONE_NODE, TWO_NODES), source="H100"),
    "hgx-h200": Fit(files=(ONE_NODE,), source="H200", start="hgx-h100"),
    "hgx-h800": Fit(files=(H800,), source="H800"),
    "hgx-b200": Fit(files=(ONE_NODE,), source="B200,!GB200", start="hgx-h100"),
    "gb200-nvl72": Fit(files=(ONE_NODE,), source="GB200", start="hgx-b200"),
    "hgx-b300": Fit(files=(ONE_NODE,), source="B300,!GB300", start="hgx-h100"),
    "gb300-nvl72": Fit(files=(ONE_NODE,), source="GB300", start="hgx-b200"),
    "dgx-v100": Fit(files=(VTRAIN,), source="V100"),
}


def main() -> None:
    """Fit all, or those that are named."""
    folder, *names = sys.argv[1:]
    for name in names or FITS:
        fit = FITS[name]
        table = read_measurements([Path(folder) / file for file in fit.files]).choose(fit.source)
        path = TOPOLOGIES / f"{name}.toml"
        start = topology_of(fit.start) if fit.start else None
        clean, _ = table.without_outliers()
        plain = with_library(topology_of(path), PLAIN)
        write_fitted(path, fit_with_accuracy(plain, clean.curves, start), path)
        print(name)


if __name__ == "__main__":
    main()
