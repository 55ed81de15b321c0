"""A server of the explorer in a thread, for tests."""

import asyncio
import json
from collections.abc import Iterator
from itertools import accumulate
from operator import add
from threading import Event, Thread
from typing import Any

from msgspec import field

from stepsim.serve.explorer import Explorer
from stepsim.serve.server import LOOPBACK, Service, make_server


class RememberedAnswers(Explorer, kw_only=True):
    """Answers that are found once, for a page that opens with the same job in every test."""

    known: dict[str, dict[str, object]] = field(default_factory=dict)

    def answer(self, question: object) -> dict[str, object]:
        assert isinstance(question, dict)
        key = json.dumps({**question, "number": None, "tab": None}, sort_keys=True)
        if key not in self.known:
            self.known[key] = Explorer.answer(self, question)
        return self.known[key]


def unfolded(lanes: Any) -> dict[str, Any]:
    """The spans of an answer with a value for each, as a page unfolds their classes."""
    found = {name: [each[k] for k in lanes["of"]] for name, each in lanes["classes"].items()}
    found["start"] = list(accumulate(found["start"]))
    found["end"] = list(map(add, found["start"], found.pop("took")))
    if "stem" in found:
        numbers = found.pop("number")
        counted = accumulate(step or 0 for step in numbers)
        named = zip(found.pop("stem"), numbers, counted, strict=True)
        found["words"] = [stem + str(n) * (step is not None) for stem, step, n in named]
    if waits := lanes.get("waits"):
        backs = (waits["classes"]["back"][k] for k in waits["of"])
        found["waits"] = [[i - far for far in back] for i, back in enumerate(backs)]
    return found


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
