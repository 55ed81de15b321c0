"""Protobuf's wire format: fields of a message, read and written without a schema's code.

A field is its number and a value: an integer (also of fixed 4 or 8 bytes), or bytes (texts, lists,
messages). Source: "Encoding", the documentation of Protocol Buffers.
"""

from collections.abc import Iterator

_Field = tuple[int, int | bytes]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_SHIFT = 63


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The integer at a place, and the place after it; raises ValueError where it does not end."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > _MOST_SHIFT:
            raise ValueError("an integer does not end")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def read_messages(data: bytes) -> Iterator[bytes]:
    """Messages that follow each other, each after its length; raises ValueError where one ends."""
    place = 0
    while place < len(data):
        length, place = read_varint(data, place)
        if place + length > len(data):
            raise ValueError("a message is cut short")
        yield data[place : place + length]
        place += length


def read_fields(message: bytes) -> Iterator[_Field]:
    """Fields of a message in their order; raises ValueError for what is none."""
    place, end = 0, len(message)
    while place < end:
        key, place = read_varint(message, place)
        wire = key & 7
        if wire == _VARINT:
            value, place = read_varint(message, place)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            length, place = read_varint(message, place)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire, -1)
        if length < 0 or place + length > end:
            raise ValueError(f"field {key >> 3} is cut short or of an unknown kind")
        part = message[place : place + length]
        place += length
        yield key >> 3, part if wire == _BYTES else int.from_bytes(part, "little")


def read_integers(value: int | bytes) -> tuple[int, ...]:
    """A repeated integer: one, or several packed; raises ValueError."""
    if isinstance(value, int):
        return (value,)
    found, place = [], 0
    while place < len(value):
        number, place = read_varint(value, place)
        found.append(number)
    return tuple(found)


def signed(value: int) -> int:
    """An integer of 64 bits as the type int64 has it."""
    return value - (1 << 64) if value >> 63 else value


def write_varint(value: int) -> bytes:
    """An integer of at most 64 bits; a negative one takes ten bytes, as int64 does."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def write_field(number: int, value: int | bytes | str) -> bytes:
    """One field."""
    if isinstance(value, int):
        return write_varint(number << 3 | _VARINT) + write_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | _BYTES) + write_message(content)


def write_integers(number: int, values: tuple[int, ...]) -> bytes:
    """A repeated integer, packed; nothing where there is none."""
    return write_field(number, b"".join(map(write_varint, values))) if values else b""


def write_message(content: bytes) -> bytes:
    """A message after its length."""
    return write_varint(len(content)) + content
