"""JSON that people read too."""

import msgspec


def json_text(document: object) -> bytes:
    """A document as UTF-8 JSON, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
