"""Damaging documents: what an editor, a broken writer or an attacker does to a text file.

Every mutator takes a random source and bytes, and gives other bytes; the same source gives the
same bytes. `mutate` puts several together.
"""

import re
from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[Random, bytes], bytes]

MOST_BYTES = 1 << 20
"""Largest input that is made: 1 MiB."""

NUMBERS = (
    *("0", "-0", "1", "-1", "2", "3", "7", "0.5", "-0.0", "1e-320", "1e308", "-1e308", "1e309"),
    *("1e400", "nan", "NaN", "inf", "-inf", "Infinity", "1e12", "1000000000000", "16777216"),
    *("16777217", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "18446744073709551616", "1" + "0" * 30, "9" * 400, "0x10", "1_000"),
    *("1e", "e5", ".", "+5", "٣", "²", "1,5", "1e9999999999", "00012", "1.", ".5", "1" * 5000),
)
WORDS = (
    *("", " ", "\t", "\0", "\ufeff", "é", "日本", "\u202e", "\u2028", "\x85", "\x0b", "\x1b[31m"),
    *("[red]x[/red]", "[link=http://example.org]x[/link]", "None", "null", "true", "auto", "NONE"),
    *("[", "]", "{", "}", "[[", "=", ":", ",", ";", "#", '"', "'", '"""', "\\", "-", "--", ".."),
    *("../../etc/passwd", "/dev/zero", "%s", "{0}", "$(id)", "<script>", "' OR 1=1", "x" * 300),
    *("ALLREDUCE_EP", "ALLTOALL", "GB/s", "1 GB/s", "0 ns", "1 ps", "inf", "🙂", "\ud7ff"),
)
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_DIGIT = re.compile(rb"\d")
_TOKEN = re.compile(rb"[^\s,;:=()\[\]{}\"]+")
_NESTS = (b"[", b"{", b'{"a":', b"a=[", b"(", b"[[", b"x.", b'{"stages":[', b"a=" + b"{b=")


def mutate(chance: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Between one and about eight mutations; sometimes only noise. At most `MOST_BYTES` long."""
    if chance.random() < 0.01:
        return chance.randbytes(chance.randrange(200))
    count = 1
    while count < 8 and chance.random() < 0.45:
        count += 1
    for _ in range(count):
        if others and chance.random() < 0.05:
            data = _spliced(chance, data, chance.choice(others))
        else:
            data = chance.choices(_MUTATORS, _WEIGHTS)[0](chance, data)
    return data[:MOST_BYTES]


def number_to_extreme(chance: Random, data: bytes) -> bytes:
    """One number becomes another, mostly at the end of some range."""
    return _replaced(chance, data, _NUMBER, chance.choice(NUMBERS).encode())


def numbers_to_one(chance: Random, data: bytes) -> bytes:
    """Every occurrence of one number becomes another: documents that stay consistent."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    old = chance.choice(found)[0]
    new = chance.choice(NUMBERS).encode()
    return re.sub(rb"(?<![\d.])" + re.escape(old) + rb"(?![\d.])", lambda _: new, data)


def token_to_word(chance: Random, data: bytes) -> bytes:
    """A token becomes a strange word."""
    word = chance.choice(WORDS).encode("utf-8", "surrogatepass")
    return _replaced(chance, data, _TOKEN, word)


def token_to_token(chance: Random, data: bytes) -> bytes:
    """A token becomes another one of the document."""
    found = _TOKEN.findall(data)
    return _replaced(chance, data, _TOKEN, chance.choice(found)) if found else data


def digit_changed(chance: Random, data: bytes) -> bytes:
    """A digit becomes another: most documents stay what they are."""
    return _replaced(chance, data, _DIGIT, b"%d" % chance.randrange(10))


def tokens_swapped(chance: Random, data: bytes) -> bytes:
    """Two fields of one line change places."""
    lines = data.split(b"\n")
    place = chance.randrange(len(lines))
    found = list(_TOKEN.finditer(lines[place]))
    if len(found) < 2:
        return data
    a, b = sorted(chance.sample(found, 2), key=lambda match: match.start())
    line = lines[place]
    lines[place] = line[: a.start()] + b[0] + line[a.end() : b.start()] + a[0] + line[b.end() :]
    return b"\n".join(lines)


def token_deleted(chance: Random, data: bytes) -> bytes:
    """A token disappears."""
    return _replaced(chance, data, _TOKEN, b"")


def line_deleted(chance: Random, data: bytes) -> bytes:
    """A line disappears, or several."""
    lines = data.split(b"\n")
    start = chance.randrange(len(lines))
    del lines[start : start + chance.choice((1, 1, 1, 2, 5))]
    return b"\n".join(lines)


def line_doubled(chance: Random, data: bytes) -> bytes:
    """A line occurs again, rarely hundreds of times."""
    lines = data.split(b"\n")
    line = chance.choice(lines)
    times = 300 if chance.random() < 0.02 else 1
    place = chance.randrange(len(lines) + 1)
    lines[place:place] = [line] * times
    return b"\n".join(lines)


def lines_swapped(chance: Random, data: bytes) -> bytes:
    """Two lines change places."""
    lines = data.split(b"\n")
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def cut_off(chance: Random, data: bytes) -> bytes:
    """The end is missing, as of a file whose writer died; or the beginning."""
    place = chance.randrange(len(data) + 1)
    return data[:place] if chance.random() < 0.8 else data[place:]


def bytes_changed(chance: Random, data: bytes) -> bytes:
    """Some bytes are others."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if data else 0):
        changed[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(changed)


def bytes_inserted(chance: Random, data: bytes) -> bytes:
    """Strange text somewhere."""
    place = chance.randrange(len(data) + 1)
    word = chance.choice((*WORDS, *NUMBERS)).encode("utf-8", "surrogatepass")
    return data[:place] + word + data[place:]


def span_deleted(chance: Random, data: bytes) -> bytes:
    """Up to 40 bytes are missing."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + data[place + chance.randrange(40) :]


def other_line_ends(chance: Random, data: bytes) -> bytes:
    """Windows' or old Apple's line ends, blanks at the ends of lines, or none at all."""
    return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b" \n", b"\n\n", b"\x0c", b"")))


def other_encoding(chance: Random, data: bytes) -> bytes:
    """A byte order mark, UTF-16, Latin-1."""
    if chance.random() < 0.6:
        return b"\xef\xbb\xbf" + data
    text = data.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-32", "latin-1")), "replace")


def long_line(chance: Random, data: bytes) -> bytes:
    """A line, a token or a number of up to 100,000 characters."""
    length = chance.choice((1000, 5000, 20_000, 100_000))
    unit = chance.choice((b"9", b"x", b" ", b"a b ", b"1,", b"0.", b'"', b"(", b"-", b"_perf"))
    place = chance.randrange(len(data) + 1)
    return data[:place] + unit * (length // len(unit)) + data[place:]


def deep_nesting(chance: Random, data: bytes) -> bytes:
    """Brackets in brackets, some of them closed."""
    depth = chance.choice((10, 200, 1500, 20_000))
    opened = chance.choice(_NESTS)
    closed = opened.translate(bytes.maketrans(b"[{(", b"]})"), b'=abstxges":. ')[::-1]
    nest = opened * depth + (b"1" + closed * depth if chance.random() < 0.7 else b"")
    place = chance.randrange(len(data) + 1)
    return chance.choice((nest, data[:place] + nest + data[place:]))


def _replaced(chance: Random, data: bytes, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    """One match of a pattern, chosen at random, replaced."""
    found = list(pattern.finditer(data))
    if not found:
        return data
    match = chance.choice(found)
    return data[: match.start()] + new + data[match.end() :]


def _spliced(chance: Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one document and the end of another, at line ends."""
    lines, more = data.split(b"\n"), other.split(b"\n")
    return b"\n".join(
        [*lines[: chance.randrange(len(lines) + 1)], *more[chance.randrange(len(more)) :]]
    )


_CHOSEN: tuple[tuple[Mutator, float], ...] = (
    (number_to_extreme, 6),
    (numbers_to_one, 3),
    (digit_changed, 4),
    (token_to_word, 3),
    (token_to_token, 3),
    (tokens_swapped, 2),
    (token_deleted, 2),
    (line_deleted, 2),
    (line_doubled, 2),
    (lines_swapped, 1.5),
    (cut_off, 1),
    (bytes_changed, 1),
    (bytes_inserted, 2),
    (span_deleted, 1),
    (other_line_ends, 0.4),
    (other_encoding, 0.3),
    (long_line, 0.25),
    (deep_nesting, 0.25),
)
_MUTATORS = [mutator for mutator, _ in _CHOSEN]
_WEIGHTS = [weight for _, weight in _CHOSEN]
