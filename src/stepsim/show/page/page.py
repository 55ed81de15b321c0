"""The page in one file: the explorer's, or a report, which is the page with its answers inside.

What comes from files is text everywhere: answers stand packed in a block that runs nothing, and the
script only ever sets them as text. The policy runs no script but the page's own, and loads nothing.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from html import escape
from importlib import resources

import msgspec

from stepsim import __version__

# The files of the page's script, in the order in which they run as one.
_SCRIPTS = ("base", "answer", "timeline", "panels", "controls", "explorer")


def page_of(answers: Mapping[str, object] | None = None, title: str = "stepsim explorer") -> bytes:
    """The page, the same bytes every time; without answers it asks a server for them."""
    folder = resources.files("stepsim.show.page")
    text = {
        kind: folder.joinpath(f"explorer.{kind}").read_text("utf-8") for kind in ("html", "css")
    }
    script = "\n".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    # answers as a page unpacks them: in no letters that mean something to HTML
    packed = base64.b64encode(zlib.compress(msgspec.json.encode(answers), 9)).decode()
    parts = {
        "title": escape(title),
        "version": __version__,
        "policy": (
            f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(text['css'])}; "
            "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'"
        ),
        "style": text["css"],
        "answers": packed if answers else "",
        "script": script,
    }
    return re.sub(r"/\*(\w+)\*/", lambda found: parts[found[1]], text["html"]).encode()


def _digest(text: str) -> str:
    """A script or style as a policy names it, in its quotes."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
