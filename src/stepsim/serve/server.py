"""The explorer's server: one page, one address for questions, uploads and files to take away.

The only module that imports tornado, the web server.

A question is answered in a thread of its own, and stopped when its asker has gone. A long question
is one computation with few places to look whether it is still wanted. So the interpreter is asked
to raise an exception in its thread (`PyThreadState_SetAsyncExc`), which it does before the next
instruction; what is held is let go as after any exception.
"""

import asyncio
import ctypes
import hmac
import json
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from threading import Lock, get_ident
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from stepsim.base.errors import StepsimError, one_line
from stepsim.serve.explorer import LONG, Explorer
from stepsim.serve.export import exported
from stepsim.serve.state import ExplorerState, Question
from stepsim.show.page.page import page_of
from stepsim.views.facts import Plain

LOOPBACK = "127.0.0.1"
_MOST_UPLOADED = 64 << 20
# Bytes of an upload, and of any other body.
_MOST_ASKED = 128 << 10
_UPLOADS_AT_ONCE = 2
_MOST_BUFFERED = 1 << 20
_MOST_CONNECTIONS = 256
# Seconds that a client has for a request's headers, its body, and the body of an upload.
_IDLE_S, _BODY_S, _UPLOAD_S = 30.0, 20.0, 300.0
_WORKERS = 2
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
# Headers of all answers.
_HEADERS = {
    "Server": "stepsim",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_Result = TypeVar("_Result")


class ObsoleteError(BaseException):
    """Nobody waits for this answer: a newer question of its tab has come, or the tab has gone.

    It is no Exception, so that nothing takes it for a mistake and goes on.
    """


class Asked(Struct, kw_only=True):
    """A piece of work, and the thread that does it while it does."""

    is_stopped: bool = False
    _thread: int | None = None
    _lock: Lock = field(default_factory=Lock)

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do the work in this thread; raises ObsoleteError where it was stopped."""
        try:
            with self._lock:
                if self.is_stopped:
                    raise ObsoleteError
                self._thread = get_ident()
            return work()
        finally:
            with self._lock:
                if self._thread is not None:
                    _raise_in(self._thread, None)  # what comes too late meets nobody else
                self._thread = None

    def stop(self) -> None:
        """End the work now, or before it begins."""
        with self._lock:
            if not self.is_stopped and self._thread is not None:
                _raise_in(self._thread, ObsoleteError)
            self.is_stopped = True


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread before its next instruction; None takes back one on its way."""
    raised = ctypes.py_object(error) if error else ctypes.c_void_p()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


class Service(Struct, kw_only=True):
    """What all requests share: the explorer, the workers, and what each tab has asked.

    `token` is asked for where other machines can connect, empty on the loopback. Questions that
    take long go to `workers`; `quick` is kept for all others, so that they wait for none of these.
    `busy` are connections whose request is under way, `uploads` those that bring a file.
    """

    explorer: Explorer
    token: str = ""
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_WORKERS, thread_name_prefix="stepsim")
    )
    quick: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="stepsim-quick")
    )
    jobs: dict[str, list[tuple[int, Asked]]] = {}
    busy: set[IOStream] = set()
    uploads: set[IOStream] = set()

    def stop(self, tab: str, before: float = inf) -> None:
        """End what a tab has asked for before a question, or all of it."""
        for number, job in self.jobs.get(tab, ()):
            if number < before:
                job.stop()

    async def ask(self, question: Mapping[str, object], tab: str, number: int, job: Asked) -> Plain:
        """The answer to a tab's question, by the quick worker unless it may take long.

        It is `obsolete` where the tab has asked for something newer before it is found.
        """
        loop, asked = asyncio.get_running_loop(), self.jobs.setdefault(tab, [])
        pool = self.workers if question.get("kind") in LONG else self.quick
        asked.append((number, job))
        self.stop(tab, before=number)
        try:
            return await loop.run_in_executor(
                pool, job.run, partial(self.explorer.answer, question)
            )
        except ObsoleteError:
            return {"obsolete": True}
        finally:
            asked.remove((number, job))
            if not asked:
                self.jobs.pop(tab, None)

    def close(self) -> None:
        """End what is under way and take no more questions."""
        for tab in list(self.jobs):
            self.stop(tab)
        for pool in (self.quick, self.workers):
            pool.shutdown(wait=False, cancel_futures=True)

    def export(self, question: Mapping[str, object]) -> bytes:
        """The content of a file; raises StepsimError."""
        asked, explorer = Question.of(question), self.explorer
        state = ExplorerState.of(asked.state)
        job = explorer.inputs(state)
        command = str(explorer.lines(state)["command"])
        return exported(asked.export, explorer.run(job), job, command)


def make_server(service: Service, host: str, port: int) -> tuple[HTTPServer, str]:
    """A server that listens, and its address; port 0 is any free one.

    Must be called inside a running event loop. Raises OSError when the address is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    listening.setblocking(False)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    handlers = {
        "/": _PageHandler,
        "/answer": _AnswerHandler,
        "/upload": _UploadHandler,
        "/export": _ExportHandler,
    }
    application = Application(
        [(path, handler, {"service": service}) for path, handler in handlers.items()],
        log_function=lambda handler: None,
    )
    server = _Server(
        application,
        max_body_size=_MOST_ASKED,
        max_buffer_size=_MOST_BUFFERED,
        idle_connection_timeout=_IDLE_S,
        body_timeout=_BODY_S,
    )
    server.connections, server.service = {}, service
    server.add_socket(listening)
    query = f"?token={service.token}" if service.token else ""
    return server, f"http://{shown}:{port}/{query}"


class _Server(HTTPServer):
    """A server with so many connections at a time, the first that came first.

    For a further one the oldest is closed that has sent no whole request: who holds back headers
    shuts nobody else out. Where all have, the new one is.
    """

    connections: dict[IOStream, None]
    service: Service

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self.connections) >= _MOST_CONNECTIONS:
            idle = (each for each in self.connections if each not in self.service.busy)
            oldest = next(idle, stream)
            oldest.close()
            if oldest is stream:
                return
            self.connections.pop(oldest)
        self.connections[stream] = None
        super().handle_stream(stream, address)

    def on_close(self, server_conn: object) -> None:
        stream = cast(Any, server_conn).stream
        self.connections.pop(stream, None)
        self.service.busy.discard(stream)
        super().on_close(server_conn)


@stream_request_body
class _Handler(RequestHandler):
    """What every request must pass: a host name of this server, its origin, the token.

    Headers are looked at before the body is read. What is refused is read no further than a small
    body, and the connection is closed.
    """

    service: Service

    def initialize(self, service: Service) -> None:
        self.service = service
        self.pieces = list[bytes]()

    def data_received(self, chunk: bytes) -> None:
        self.pieces.append(chunk)

    @property
    def body(self) -> bytes:
        """The body of the request, once the method is called."""
        return b"".join(self.pieces)

    def prepare(self) -> None:
        self.stream = cast(HTTP1Connection, self.request.connection).stream
        self.service.busy.add(self.stream)
        try:
            self.check()
        except HTTPError:
            self.set_header("Connection", "close")
            raise

    def on_finish(self) -> None:
        self.service.busy.discard(self.stream)

    def check(self) -> None:
        """Refuse names and pages of others, and what no page of this server asks.

        Raises HTTPError, by what stands in the headers.
        """
        name = self.request.host_name.strip("[]")
        if not self.service.token and name not in _LOOPBACK_NAMES:
            raise HTTPError(403, reason="another host name")
        origin = self.request.headers.get("Origin")
        if origin is not None and origin != f"{self.request.protocol}://{self.request.host}":
            raise HTTPError(403, reason="another origin")
        if self.request.method == "POST" and self.request.headers.get("X-Stepsim") != "1":
            raise HTTPError(403, reason="not the page of this server")
        if self.service.token:
            given = self.get_query_argument("token", "") or self.request.headers.get("X-Token", "")
            if not hmac.compare_digest(given.encode(), self.service.token.encode()):
                raise HTTPError(403, reason="the token is missing")

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.finish({"error": self._reason})

    def message(self) -> Plain:
        """The JSON object in a request's body."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise HTTPError(400, reason="expected a JSON object")
        return found


class _PageHandler(_Handler):
    def get(self) -> None:
        self.set_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page_of())


class _AnswerHandler(_Handler):
    def on_connection_close(self) -> None:
        """Nobody waits for the answer any more."""
        self.job.stop()

    def initialize(self, service: Service) -> None:
        super().initialize(service)
        self.job = Asked()

    async def post(self) -> None:
        question = self.message()
        tab, number = str(question.get("tab", ""))[:64], question.get("number")
        if not isinstance(number, int):
            raise HTTPError(400, reason="number: expected a whole number")
        try:
            found = await self.service.ask(question, tab, number, self.job)
        except Exception as error:  # the page lives on, whatever went wrong
            found = {"error": one_line(f"{type(error).__name__}: {error}"), "crash": True}
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(found))


class _UploadHandler(_Handler):
    """A file, the only body that may be large: so many at a time."""

    def prepare(self) -> None:
        super().prepare()
        if len(self.service.uploads) >= _UPLOADS_AT_ONCE:
            self.set_header("Connection", "close")
            raise HTTPError(503, reason="other files are being uploaded: try again")
        self.service.uploads.add(self.stream)
        connection = cast(HTTP1Connection, self.request.connection)
        connection.set_max_body_size(_MOST_UPLOADED)
        connection.set_body_timeout(_UPLOAD_S)

    def on_finish(self) -> None:
        super().on_finish()
        self.service.uploads.discard(self.stream)
        self.pieces.clear()

    def on_connection_close(self) -> None:
        self.on_finish()

    async def post(self) -> None:
        kind, name = (self.get_query_argument(each, "") for each in ("kind", "name"))
        loop = asyncio.get_running_loop()
        library = self.service.explorer.library
        try:
            called = await loop.run_in_executor(
                self.service.workers, library.upload, kind, name, self.body
            )
        except StepsimError as error:
            self.finish({"error": str(error)})
        else:
            self.finish({"name": called})


class _ExportHandler(_Handler):
    async def post(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            content = await loop.run_in_executor(
                self.service.workers, self.service.export, self.message()
            )
        except StepsimError as error:
            self.set_status(400)
            self.finish({"error": str(error)})
            return
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", "attachment")
        self.finish(content)
