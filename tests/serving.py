"""A server of the explorer in a thread, for tests."""

import asyncio
import json
from collections.abc import Iterator
from threading import Event, Thread

from msgspec import field

from stepsim.serve.answers import Answers
from stepsim.serve.explorer import Progress
from stepsim.serve.server import LOOPBACK, Service, make_server


class RememberedAnswers(Answers, frozen=True, kw_only=True):
    """Answers that are found once, for a page that opens with the same job in every test."""

    known: dict[str, dict[str, object]] = field(default_factory=dict)

    def answer(self, question: object, progress: Progress | None = None) -> dict[str, object]:
        assert isinstance(question, dict)
        key = json.dumps({**question, "number": None, "tab": None}, sort_keys=True)
        if key not in self.known:
            self.known[key] = Answers.answer(self, question, progress)
        return self.known[key]


def running(service: Service) -> Iterator[str]:
    """The address of a server in a thread of its own."""
    loop, started, address = asyncio.new_event_loop(), Event(), list[str]()

    async def begin() -> None:
        _, where = make_server(service, LOOPBACK, 0)
        address.append(where)
        started.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(20)
    yield address[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    service.close()
