"""What strangers, slow clients and long questions do to the explorer's server: little."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest
from serving import running

from stepsim.serve import server
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.server import Asked, ObsoleteError, Service

OWN = {"X-Stepsim": "1", "Content-Type": "application/json"}
SIZE = 60 << 20
LONG_STATE = {
    "workload": "llama-3.1-405b",
    "topology": "hgx-h100",
    "npus": "16384",
    "tp": "8",
    "pp": "16",
    "global_batch": "524288",
}
QUICK_STATE = {"workload": "llama-3.2-1b", "topology": "hgx-h100", "npus": "8"}


def service_of(answers: type[Explorer] = Explorer) -> Service:
    return Service(explorer=answers(library=NamedNouns()))


@pytest.fixture
def service() -> Service:
    return service_of()


@pytest.fixture
def port(service: Service) -> Iterator[int]:
    yield from ports(service)


def ports(service: Service) -> Iterator[int]:
    """The port of the service while it runs."""
    for address in running(service):
        yield int(urlsplit(address).port or 0)


def soon(is_so: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether something comes true before the time has passed."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()


def question(port: int, state: dict[str, str], tab: str, kind: str = "shown") -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = json.dumps({"tab": tab, "number": 1, "kind": kind, "state": state})
    connection.request("POST", "/answer", body, OWN)
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def upload(port: int, host: str, size: int) -> tuple[bytes, int]:
    """What a client hears that begins an upload, and how much of it the server took."""
    sent, piece = 0, bytes(1 << 16)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        words = (
            f"POST /upload?kind=workload&name=a.txt HTTP/1.1\r\nHost: {host}\r\nX-Stepsim: 1\r\n"
        )
        client.sendall(f"{words}Content-Length: {size}\r\n\r\n".encode())
        heard = client.recv(1 << 12) if host != "127.0.0.1" else b""
        with suppress(ConnectionError):
            while sent < size:
                client.sendall(piece)
                sent += len(piece)
        with suppress(ConnectionError):
            heard += client.recv(1 << 12)
    return heard, sent


def test_a_strangers_upload_is_refused_by_its_headers(port: int) -> None:
    heard, sent = upload(port, "evil.example", SIZE)
    assert heard.startswith(b"HTTP/1.1 403 another host name")
    assert sent < SIZE // 4  # what lies in the system's buffers when the connection is closed


@pytest.mark.parametrize("path", ["/answer", "/export", "/elsewhere"])
def test_a_large_body_is_for_uploads_only(port: int, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        try:
            connection.request("POST", path, bytes(1 << 20), OWN)
            with connection.getresponse() as reply:
                code = reply.status
        except ConnectionError:
            code = 400
    assert code in (400, 404)


def test_uploads_wait_for_one_another(port: int, service: Service) -> None:
    words = "POST /upload?kind=workload&name=a.txt HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Stepsim: 1\r\n"
    begun = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(2)]
    for client in begun:
        client.sendall(f"{words}Content-Length: 1000\r\n\r\nx".encode())
    assert soon(lambda: len(service.uploads) == 2)
    assert upload(port, "127.0.0.1", 1 << 10)[0].startswith(b"HTTP/1.1 503")
    for client in begun:
        client.close()
    assert soon(lambda: not service.uploads)
    assert upload(port, "127.0.0.1", 1 << 10)[0].startswith(b"HTTP/1.1 200")


def test_slow_clients_are_left(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_IDLE_S", 0.3)
    monkeypatch.setattr(server, "_BODY_S", 0.3)
    begins = (
        b"",
        b"GET / HT",
        b"POST /export HTTP/1.1\r\nHost: localhost\r\nX-Stepsim: 1\r\nContent-Length: 9\r\n\r\na",
    )
    for port in ports(service):
        for begin in begins:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(begin)
                assert client.recv(100) == b""


def test_only_so_many_connect_at_a_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    for port in ports(service):
        idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(3)]
        for client in idle:
            client.sendall(b"GET / HTTP/1.1\r\nHo")
        time.sleep(0.2)
        assert is_answered(port)
        assert idle[0].recv(100) == b""
        idle[2].sendall(b"st: 127.0.0.1\r\n\r\n")
        assert idle[2].recv(12) == b"HTTP/1.1 200"
        for client in idle:
            client.close()
        assert soon(partial(is_answered, port))


def is_answered(port: int) -> bool:
    """Whether the server has a place for one more connection."""
    with suppress(ConnectionError):
        return "command" in question(port, QUICK_STATE, "a", "lines")
    return False


def spin(began: Event, ended: Event) -> None:
    """Work without an end that looks at nothing."""
    try:
        began.set()
        while True:
            pass
    finally:
        ended.set()


def test_a_job_stops_where_it_is_and_its_thread_goes_on() -> None:
    job, began, ended = Asked(), Event(), Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(job.run, lambda: spin(began, ended))
        assert began.wait(20)
        job.stop()
        job.stop()
        with pytest.raises(ObsoleteError):
            working.result(20)
        assert ended.is_set()
        assert pool.submit(Asked().run, lambda: 7).result(20) == 7
        with pytest.raises(ObsoleteError):
            pool.submit(job.run, lambda: 7).result(20)


def test_a_job_that_is_stopped_after_its_end_is_done() -> None:
    job = Asked()
    assert job.run(lambda: 3) == 3
    job.stop()
    assert sum(range(100)) == 4950


class Endless(Explorer):
    """Long questions never end; `began` and `ended` count them."""

    began, ended = list[Event](), list[Event]()

    def answer(self, question: object) -> dict[str, object]:
        if not (isinstance(question, dict) and question["kind"] == "shown"):
            return super().answer(question)
        self.began.append(Event())
        self.ended.append(Event())
        spin(self.began[-1], self.ended[-1])
        raise AssertionError


def begun_are(count: int) -> bool:
    """Whether so many long questions are soon begun."""
    return soon(lambda: len(Endless.began) == count)


def test_long_questions_hold_up_no_quick_one_and_end_with_their_clients() -> None:
    service = service_of(Endless)
    for port in ports(service):
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(3)]
        for tab, client in enumerate(clients):
            asked = {"tab": str(tab), "number": 1, "kind": "shown", "state": LONG_STATE}
            client.request("POST", "/answer", json.dumps(asked), OWN)
            assert begun_are(min(tab + 1, 2))  # so the third is the one that waits
        began = time.monotonic()
        assert "command" in question(port, QUICK_STATE, "quick", "lines")
        print(f"a quick answer beside two long ones: {time.monotonic() - began:.2f} s")
        clients[0].close()
        assert begun_are(3)  # the third has the worker of the first
        assert sum(each.is_set() for each in Endless.ended) == 1
        service.stop("1")
        assert json.loads(clients[1].getresponse().read()) == {"obsolete": True}
        for client in clients[1:]:
            client.close()
        assert soon(lambda: all(each.is_set() for each in Endless.ended))
        assert soon(lambda: not service.jobs)
