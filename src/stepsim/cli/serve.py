"""`stepsim serve`: the explorer in the browser."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from stepsim.base.errors import OutputError, within
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import QuietOptions, takes
from stepsim.cli.terminal import Stopped, warn

if TYPE_CHECKING:
    import asyncio

    from stepsim.serve.server import Service


@takes(QuietOptions)
def serve_command(
    files: Annotated[
        tuple[Path, ...],
        argument(
            "[FILE]...",
            "What the page offers: workloads, models, measured runs, profiles, results.",
        ),
    ] = (),
    topology: str | None = flag("A topology file beside the shipped ones.", "--topology", "-t"),
    port: int = flag("Port to listen on; 0 takes a free one.", default=5006),
    host: str | None = flag("Let other machines connect to this address, with a token."),
    show: bool = flag("Open the browser.", "--show/--no-show", default=True),
) -> None:
    """Open an explorer in the browser.

    Change a number there and see the new step.
    """
    import asyncio
    import secrets

    from stepsim.serve.explorer import Explorer
    from stepsim.serve.library import NamedNouns
    from stepsim.serve.server import LOOPBACK, Service

    within("port", port, 0, 65535)
    library = NamedNouns()
    for path in files:
        library.open(path)
    if topology:
        library.open_topology(topology)
    token = secrets.token_urlsafe(24) if host else ""
    service = Service(explorer=Explorer(library=library), token=token)
    if host:
        warn([f"everyone who has the link can use stepsim on {host}"])
    raise Stopped(asyncio.run(_serve(service, host or LOOPBACK, port, show=show)))


async def _serve(service: "Service", host: str, port: int, *, show: bool) -> int:
    """Answer until a signal asks for an end; returns its number."""
    import webbrowser

    from stepsim.serve.server import make_server

    ended = _signals()
    try:
        _, address = make_server(service, host, port)
    except OSError as error:
        raise OutputError(f"port {port} of {host}: {error.strerror}: choose another") from None
    click.echo(f"stepsim explorer: {address}")
    click.echo("Press Ctrl+C to end it.", err=True)
    if show:
        webbrowser.open(address)
    try:
        return await ended
    finally:
        service.close()


def _signals() -> "asyncio.Future[int]":
    """The first SIGINT or SIGTERM, as the loop is told: what is raised in its callbacks is lost."""
    import asyncio

    loop = asyncio.get_running_loop()
    first = loop.create_future()

    def tell(number: int) -> None:
        if not first.done():
            first.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, tell, number)
    return first
