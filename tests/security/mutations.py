"""Valid bodies, broken by chance: the same seed breaks them the same way."""

import json
import random
from collections.abc import Callable
from typing import Any

_KEYS = [
    "",
    "$where",
    "$set",
    "a.b",
    "_id",
    "__proto__",
    "\0",
    "key\0",
    "é" * 300,
    "k" * 2_000,
    "id",
    "createdBy",
    "isAdmin",
]
_TEXTS = [
    "", "\0", "a\0b", "\ud800", "\udfff\ud800", "$where", "{{", "}}", "{{a", "{{{a}}}", "%s%n", "../../etc/passwd",
    "a" * 70_000, "null", "1e999", "-0", "0x10", "\u202e", "😀" * 99, "'; DROP TABLE x; --", "<script>",
    "2160-01-01T00:00:00Z",
    "9999-12-31T23:59:60+99:99", "0000-00-00", "* * * * *", "60 24 32 13 8", "http://169.254.169.254/", "s3://a/b",
]  # fmt: skip
_NUMBERS = [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**25, 0.1, -0.0, 1e308, 5e-324]
_OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"": None}]
_RAW = [
    b"1e999", b"-1e999", b"NaN", b"Infinity", b"01", b"1.", b".5", b"+1", b"0x1", b'"\\ud800"', b'"\\u0000"', b'"\xff"',
    b'"\xed\xa0\x80"', b"9" * 400, b"[" * 200 + b"]" * 200, b'{"a":' * 200 + b"1" + b"}" * 200, b'{"a":1,"a":2}',
    b"'a'", b"[1,]", b"{,}", b"tru", b"\xef\xbb\xbf1", b"/**/1", b'"\n"', b"",
]  # fmt: skip
_HOLE = "@hole@"


def mutated(valid: Any, rand: random.Random) -> bytes:
    """The bytes of a body with one to three faults, or what might be one."""
    value = json.loads(json.dumps(valid))
    for _ in range(rand.choice([1, 1, 2, 3])):
        value = rand.choice(_OF_VALUES)(value, rand)
    content = json.dumps(value, ensure_ascii=rand.random() < 0.5).encode("utf-8", "surrogatepass")
    content = content.replace(f'"{_HOLE}"'.encode(), rand.choice(_RAW))
    return rand.choice(_OF_BYTES)(content, rand) if rand.random() < 0.2 else content


def _replaced(value: Any, rand: random.Random) -> Any:
    """One value somewhere is another one."""
    return _at_some_place(
        value, rand, lambda _: rand.choice([rand.choice(_TEXTS), rand.choice(_NUMBERS), _other(rand)])
    )


def _raw(value: Any, rand: random.Random) -> Any:
    """One value somewhere is what `json` would not write."""
    return _at_some_place(value, rand, lambda _: _HOLE)


def _with_key(value: Any, rand: random.Random) -> Any:
    """One object somewhere has one key more."""

    def added(place: Any) -> Any:
        return place | {rand.choice(_KEYS): _other(rand)} if isinstance(place, dict) else {rand.choice(_KEYS): place}

    return _at_some_place(value, rand, added)


def _without_key(value: Any, rand: random.Random) -> Any:
    """One object somewhere has one key less, or it in capitals."""

    def less(place: Any) -> Any:
        if not isinstance(place, dict) or not place:
            return place
        key = rand.choice(sorted(place))
        rest = {name: inner for name, inner in place.items() if name != key}
        return rest if rand.random() < 0.5 else rest | {key.upper(): place[key]}

    return _at_some_place(value, rand, less)


def _deeper(value: Any, rand: random.Random) -> Any:
    """One value somewhere lies deep inside others."""

    def nested(place: Any) -> Any:
        for _ in range(rand.choice([1, 10, 63, 64, 65, 101, 150])):
            place = {"a": place} if rand.random() < 0.5 else [place]
        return place

    return _at_some_place(value, rand, nested)


_OF_VALUES: list[Callable[[Any, random.Random], Any]] = [_replaced, _replaced, _raw, _with_key, _without_key, _deeper]


def _other(rand: random.Random) -> Any:
    return rand.choice(_OTHERS)


def _at_some_place(value: Any, rand: random.Random, change: Callable[[Any], Any]) -> Any:
    """The value with what stands at a random place inside it changed."""
    if isinstance(value, dict) and value and rand.random() < 0.8:
        key = rand.choice(sorted(value))
        return value | {key: _at_some_place(value[key], rand, change)}
    if isinstance(value, list) and value and rand.random() < 0.8:
        place = rand.randrange(len(value))
        return [*value[:place], _at_some_place(value[place], rand, change), *value[place + 1 :]]
    return change(value)


def _cut(content: bytes, rand: random.Random) -> bytes:
    return content[: rand.randrange(len(content) + 1)]


def _flipped(content: bytes, rand: random.Random) -> bytes:
    broken = bytearray(content or b" ")
    broken[rand.randrange(len(broken))] = rand.randrange(256)
    return bytes(broken)


def _repeated_key(content: bytes, rand: random.Random) -> bytes:
    """The first key stands twice."""
    return content.replace(b"{", b"{" + content[1:].partition(b",")[0] + b",", 1) if content[:1] == b"{" else content


def _followed(content: bytes, rand: random.Random) -> bytes:
    return content + rand.choice([b"{}", b"\0", b"\xff", b"]", b"\n" * 9_000, content])


def _in_another_coding(content: bytes, rand: random.Random) -> bytes:
    return content.decode("utf-8", "replace").encode(rand.choice(["utf-16", "utf-32", "utf-7", "utf-8-sig"]))


_OF_BYTES: list[Callable[[bytes, random.Random], bytes]] = [
    _cut,
    _flipped,
    _repeated_key,
    _followed,
    _in_another_coding,
]
