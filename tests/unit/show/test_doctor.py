"""`stepsim doctor`: a broken part is named, the others are still checked."""

import json
from importlib import metadata
from typing import Any

import pytest
from helpers import Run

from stepsim.base.structs import replace
from stepsim.show import doctor
from stepsim.show.doctor import Check, Status, diagnose


def found() -> dict[str, Check]:
    return {check.name: check for check in diagnose()}


def test_this_installation_works(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert "closed form to the picosecond" in out
    assert not [line for line in out.splitlines() if line.startswith("failed")]


def test_every_required_package_is_checked() -> None:
    required = {
        text.partition(">")[0] for text in metadata.requires("stepsim") or () if "extra" not in text
    }
    assert {"simpy", "numpy", "networkx", "matplotlib"} <= required
    assert required <= found().keys()


def broken_version(versions: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.version

    def version(name: str) -> str:
        answer = versions.get(name, "known")
        if answer is None:
            raise metadata.PackageNotFoundError(name)
        return known(name) if answer == "known" else answer

    monkeypatch.setattr(metadata, "version", version)


def test_old_and_missing_packages_fail_and_extras_do_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_version({"simpy": "3.0", "rich": None, "dask": None}, monkeypatch)
    checks = found()
    assert checks["simpy"].status is Status.FAILED
    assert checks["simpy"].detail == "3.0: expected >=4.1"
    assert checks["rich"].status is Status.FAILED
    assert checks["dask"].status is Status.ABSENT
    assert "stepsim[dask]" in checks["dask"].detail
    assert checks["figures"].status is Status.OK
    assert run("doctor")[0] == 1


def test_a_wrong_step_time_is_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepsim.step import simulate as api

    simulate = api.simulate_step

    def wrong(*arguments: Any, **options: Any) -> Any:
        workload, topology, asked = arguments
        return simulate(workload, topology, replace(asked, microbatches=6), **options)

    monkeypatch.setattr(api, "simulate_step", wrong)
    code, out, _ = run("doctor", "--json", "-")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1
    assert checks["simulation"]["status"] == "failed"
    assert checks["simulation"]["detail"] == "a step of 48000000 ps came out as 54000000 ps"
    assert checks["workers"]["status"] == "ok"


def test_no_topologies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepsim.files.reading.topology_names", list)
    assert found()["topologies"].status is Status.FAILED


def test_any_exception_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("no figures today")

    monkeypatch.setattr(doctor, "_figures", broken)
    check = found()["figures"]
    assert (check.status, check.detail) == (Status.FAILED, "ZeroDivisionError: no figures today")
