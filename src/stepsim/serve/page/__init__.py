"""The page's text, look and script, and the policy that lets it run nothing else."""

import hashlib
from base64 import b64encode
from importlib import resources


def page_parts() -> dict[str, str]:
    """Text of the page (`html`), its look (`css`) and its script (`js`)."""
    folder = resources.files(__name__)
    return {
        kind: folder.joinpath(f"explorer.{kind}").read_text("utf-8")
        for kind in ("html", "css", "js")
    }


def page_and_policy() -> tuple[str, str]:
    """The page in one file, and its content security policy."""
    parts = page_parts()
    style, script = parts["css"], parts["js"]
    page = parts["html"].replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page, policy


def _digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
