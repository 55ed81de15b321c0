"""What stepsim says while it works reaches those who listen to Python's log."""

import logging
import sys

import pytest

from stepsim.base.errors import said


def test_what_is_said_is_a_record_of_its_module(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="stepsim"):
        said("stepsim.step", "%d of %s", 2, "many")
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("stepsim.step", "2 of many")
    assert record.funcName == "test_what_is_said_is_a_record_of_its_module"


def test_nobody_listens_without_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "logging")
    said("stepsim.step", "%d", "no number")
