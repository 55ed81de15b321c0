"""A server of the explorer in a thread, for tests."""

import asyncio
from collections.abc import Iterator
from threading import Event, Thread

from stepsim.serve.server import LOOPBACK, Service, make_server


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
