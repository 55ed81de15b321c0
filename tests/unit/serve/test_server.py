"""The explorer's server: what it answers, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from serving import running

from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.server import Asked, Service
from stepsim.show.page.page import page_of

WORKLOADS = Path(__file__).parents[3] / "workloads"
STATE = {"workload": "gpt_tp4.txt", "topology": "hgx-h100"}
OWN = {"X-Stepsim": "1", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def service() -> Service:
    library = NamedNouns()
    library.open(WORKLOADS / "gpt_tp4.txt")
    return Service(explorer=Explorer(library=library))


@pytest.fixture(scope="module")
def address(service: Service) -> Iterator[str]:
    yield from running(service)


def fetch(url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, Any]:
    request = Request(url, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urlopen(request, timeout=30) as reply:
            return reply.status, reply.read(), reply.headers
    except HTTPError as error:
        return error.code, error.read(), error.headers


def post(url: str, question: dict[str, object], **headers: str) -> tuple[int, bytes, Any]:
    body = json.dumps({"tab": "a", "number": 1, **question}).encode()
    return fetch(url, body, **(headers or OWN))


def answer(address: str, **question: object) -> dict[str, Any]:
    code, found, _ = post(f"{address}answer", question)
    assert code == 200
    plain: dict[str, Any] = json.loads(found)
    return plain


def test_the_page_runs_its_own_script_and_loads_nothing(address: str) -> None:
    code, page, headers = fetch(address)
    assert (code, page) == (200, page_of())
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"://" not in page


def test_a_question_is_answered(address: str) -> None:
    found = answer(address, kind="shown", state=STATE)
    assert found["step_ps"] > 0
    assert found["job"][0].startswith("gpt_tp4.txt on ")


def test_work_ends_when_something_newer_is_asked(service: Service) -> None:
    old, new = Asked(), Asked()
    service.jobs["long"] = [(1, old), (2, new)]
    service.stop("long", 2)
    assert old.is_stopped
    assert not new.is_stopped
    del service.jobs["long"]


def test_a_crash_is_an_answer_and_the_server_lives(
    address: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(Explorer, "shown", crash)
        found = answer(address, kind="shown", state=STATE)
    assert found == {"error": "ZeroDivisionError: on purpose", "crash": True}
    assert answer(address, kind="shown", state=STATE)["step_ps"] > 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "application/json"},
        {**OWN, "Origin": "http://evil.example"},
        {**OWN, "Origin": "null"},
        {**OWN, "Host": "evil.example"},
    ],
)
def test_requests_of_other_pages_are_refused(address: str, headers: dict[str, str]) -> None:
    code, found, reply = post(f"{address}answer", {"kind": "choices"}, **headers)
    assert code == 403
    assert b"works" not in found
    assert "Access-Control-Allow-Origin" not in reply


def test_a_page_of_another_host_name_is_refused(address: str) -> None:
    assert fetch(address, Host="evil.example")[0] == 403


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b'{"kind": "choices"}', b"\xff"]
)
def test_a_body_that_is_no_question_is_refused(address: str, body: bytes) -> None:
    assert fetch(f"{address}answer", body, **OWN)[0] == 400


def test_an_upload_is_read_and_named(address: str) -> None:
    text = (WORKLOADS / "gpt_tp4.txt").read_bytes()
    code, found, _ = fetch(f"{address}upload?kind=workload&name=mine.txt", text, **OWN)
    assert (code, json.loads(found)) == (200, {"name": "mine.txt"})
    assert answer(address, kind="shown", state={**STATE, "workload": "mine.txt"})["step_ps"] > 0
    code, found, _ = fetch(f"{address}upload?kind=topology&name=bad.toml", b"x = [", **OWN)
    assert json.loads(found)["error"].startswith("bad.toml")


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("json", b"{"),
        ("csv", b"rank,"),
        ("trace", b"\x1f\x8b"),
        ("report", b"<!"),
        ("figure", b"<?xml"),
    ],
)
def test_files_are_those_of_the_command_line(address: str, kind: str, begins: bytes) -> None:
    code, found, headers = post(f"{address}export", {"export": kind, "state": STATE})
    assert code == 200
    assert headers["Content-Disposition"] == "attachment"
    assert found.startswith(begins)


def test_an_unknown_file_is_refused(address: str) -> None:
    code, found, _ = post(f"{address}export", {"export": "passwd", "state": STATE})
    assert code == 400
    assert "expected one of report, figure" in json.loads(found)["error"]


def test_with_a_token_nothing_is_answered_without_it() -> None:
    service = Service(explorer=Explorer(library=NamedNouns()), token="secret")
    for address in running(service):
        root, _, query = address.partition("?")
        assert query == "token=secret"
        assert fetch(root)[0] == 403
        assert fetch(f"{root}?token=wrong")[0] == 403
        assert fetch(address)[0] == 200
        for token, code in (({}, 403), ({"X_Token": "secret"}, 200)):
            assert post(f"{root}answer", {"kind": "choices"}, **OWN, **token)[0] == code
