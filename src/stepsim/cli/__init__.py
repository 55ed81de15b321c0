"""The command line, a module per command or two. Heavy imports wait until a command runs."""

import signal
from threading import current_thread, main_thread

from stepsim.base.process import paused

_HANDLER = signal.getsignal(signal.SIGINT)
_QUIET = _HANDLER is signal.default_int_handler and current_thread() is main_thread()

if _QUIET:  # a command that has not begun has nothing to say when it is stopped
    signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    with paused():
        from stepsim.cli.root import main, make_app
finally:
    if _QUIET:
        signal.signal(signal.SIGINT, _HANDLER)

__all__ = ["main", "make_app"]
