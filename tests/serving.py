"""A server of the explorer in a thread, for tests."""

import asyncio
import json
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

from msgspec import field

from stepsim.serve.answers import Answers
from stepsim.serve.server import LOOPBACK, Service, make_server


class RememberedAnswers(Answers, frozen=True, kw_only=True):
    """Answers that are found once, for a page that opens with the same job in every test."""

    known: dict[str, dict[str, object]] = field(default_factory=dict)

    def answer(self, question: object) -> dict[str, object]:
        assert isinstance(question, dict)
        key = json.dumps({**question, "number": None, "tab": None}, sort_keys=True)
        if key not in self.known:
            self.known[key] = Answers.answer(self, question)
        return self.known[key]


def unfolded(lanes: Any) -> dict[str, Any]:
    """The spans of an answer with a value for each, as a page unfolds their classes."""
    columns = dict(lanes["classes"])
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    spans = [dict(rows[number]) for number in lanes["of"]]
    last: dict[object, dict[str, int]] = {}
    for span in spans:
        before = last.setdefault((span.get("row"), span.get("stem")), {"start": 0, "number": 0})
        before["start"] += span["start"]
        before["number"] += span.get("number") or 0
        span["start"], span["end"] = before["start"], before["start"] + span.pop("took")
        if "stem" in span:
            is_counted = span.pop("number") is not None
            span["words"] = span.pop("stem") + (str(before["number"]) if is_counted else "")
    found = {name: [span[name] for span in spans] for name in (spans[0] if spans else ())}
    if lanes.get("waits"):
        back = lanes["waits"]["classes"]["back"]
        waits = enumerate(lanes["waits"]["of"])
        found["waits"] = [[i - far for far in back[number]] for i, number in waits]
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
