"""A `stepsim` that starts at once, for pages and tests that run it hundreds of times.

    python tools/quick_stepsim.py FOLDER    serve FOLDER/socket until standard input ends

`quick_stepsim` gives a folder with an executable `stepsim`, to be put first on the path. It hands
its arguments, folder, environment and open files to a process that has imported what commands
need, which forks for each: what runs is the command line's own `main`, in a process of its own.
"""

import atexit
import gc
import os
import select
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path

_CLIENT = """#!{python} -SE
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
known = (f"{{name}}={{value}}" for name, value in os.environ.items())
text = os.fsencode("\\0".join([os.getcwd(), str(len(sys.argv)), *sys.argv, *known]))
socket.send_fds(line, [len(text).to_bytes(4, "big")], [0, 1, 2])
line.sendall(text)
sys.exit(line.recv(1)[0])  # no answer is an error
"""
_IMPORTED = (
    *("stepsim.cli.simulate", "stepsim.cli.compare", "stepsim.cli.sweep", "stepsim.cli.plan"),
    *("stepsim.step.prepared", "stepsim.explain.report", "stepsim.files.load"),
    *("stepsim.views.step", "stepsim.show.terminal", "stepsim.views.pages"),
    *("stepsim.explore.sweep", "stepsim.explore.plan", "stepsim.show.figures.timelines"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
)


@cache
def quick_stepsim() -> Path:
    """The folder with the executable; what serves it ends with this process."""
    holder = tempfile.TemporaryDirectory(prefix="stepsim-")
    folder = Path(holder.name)
    client = folder / "stepsim"
    client.write_text(_CLIENT.format(python=sys.executable, address=str(folder / "socket")))
    client.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a fork keeps one thread
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdout as ready:
        ready.readline()
    atexit.register(holder.cleanup)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    return folder


def _serve(folder: Path) -> None:
    """Fork for every command until standard input ends; returns in the process of a command."""
    for name in _IMPORTED:
        import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        gc.freeze()
        os.write(1, b"ready\n")
        calls = listener.fileno()
        while calls in select.select([calls, 0], [], [])[0]:
            line, _ = listener.accept()
            if not os.fork():
                listener.close()
                _become_command(line)
                return
            line.close()
            _reap()
    sys.exit()


def _reap() -> None:
    """Forget processes that have ended."""
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass


def _become_command(line: socket.socket) -> None:
    """Take what the client handed over; a process between tells it the exit code."""
    head, files, *_ = socket.recv_fds(line, 4, 3)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += line.recv(size - len(text))
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        line.sendall(bytes([code if code >= 0 else 128 - code]))
        os._exit(0)
    line.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    folder, count, *words = os.fsdecode(text).split("\0")
    os.chdir(folder)
    sys.argv = words[: int(count)]
    os.environ.clear()
    os.environ.update(word.partition("=")[::2] for word in words[int(count) :])


def _run_main() -> int:
    """The exit code of the command line; nothing is cleaned up that ends with the process."""
    code: object = 0
    try:
        import_module("stepsim.cli").main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
    os._exit(_run_main())
