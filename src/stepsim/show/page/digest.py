"""Digests by which a content security policy lets single scripts and styles run."""

import base64
import hashlib


def content_digest(text: str) -> str:
    """A script or style as a policy names it, in its quotes."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
