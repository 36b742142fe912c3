"""Columns of message ids, made-up tokens and escaped texts: the same for a device in whatever company."""

import json
import re
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.devices import Devices
from shared.push.rules.choices import fake_tokens
from shared.push.rules.records import APNS, SERVICES
from shared.push.rules.rendering import escape_texts, message_ids

KEY = 0x0123456789ABCDEF

seq_ids = st.integers(-(2**63), 2**63 - 1)
texts = st.text(
    st.sampled_from("{}\"\\'<>&%\n\r\t\x01\x1f\x7f\x85\u2028\ufeffé😀\U0010ffff")
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=12,
)


def ids_of(key: int, seq_ids: list[int], tokens: str = "") -> list[str]:
    tokens = tokens.ljust(len(seq_ids))
    made = message_ids(key, Devices.of((seq_id, "u", tokens[place], "en") for place, seq_id in enumerate(seq_ids)))
    return [(first + last).decode() for first, last in zip(made.firsts, made.lasts, strict=True)]


def test_golden_message_ids() -> None:
    assert ids_of(KEY, [0, 1, 2**48 - 1]) == [
        "01234567-89ab-8cde-8def-000000000000",
        "01234567-89ab-8cde-8def-000000000001",
        "01234567-89ab-8cde-8def-ffffffffffff",
    ]
    assert ids_of(KEY, [2**48, -1]) == [
        "01234567-89aa-8cde-8def-000000000000",
        "01234567-7654-8cde-8def-ffffffffffff",
    ]
    assert ids_of(KEY, [-1]) == ["01234567-7654-8cde-8def-ffffffffffff"]


@pytest.mark.parametrize("ids", [[5, 2**48], [-1, 5], [0, 2**48 - 1], [0], [-(2**63), 2**63 - 1]])
def test_message_ids_of_small_and_large_devices_go_together(ids: list[int]) -> None:
    assert ids_of(KEY, ids) == [ids_of(KEY, [seq_id])[0] for seq_id in ids]


@pytest.mark.parametrize(("ids", "tokens"), [([7, 7, 8], "abc"), ([8, 7, 7], "cab"), ([7, 8, 7], "acb")])
def test_golden_message_ids_of_two_that_share_a_seq_id(ids: list[int], tokens: str) -> None:
    made = dict(zip(tokens, ids_of(KEY, ids, tokens), strict=True))
    assert made == {
        "a": "43d63f8b-4a46-8fd5-bd57-000000000007",
        "b": "34e3fb72-b56e-81fe-9fe3-000000000007",
        "c": "01234567-89ab-8cde-8def-000000000008",
    }


@given(key=st.integers(0, 2**64 - 1), ids=st.lists(seq_ids, unique=True, min_size=1, max_size=50))
def test_message_ids_are_distinct_uuids_whatever_their_company(key: int, ids: list[int]) -> None:
    made = ids_of(key, ids)
    assert len(set(made)) == len(ids)
    assert made == [ids_of(key, [seq_id])[0] for seq_id in ids]
    for text in made:
        assert str(uuid.UUID(text)) == text
        assert uuid.UUID(text).version == 8
        assert uuid.UUID(text).variant == uuid.RFC_4122


@given(
    service=st.sampled_from(sorted(SERVICES)),
    key=st.integers(0, 2**64 - 1),
    ids=st.lists(seq_ids, unique=True, max_size=20),
)
def test_fake_tokens_look_like_tokens_and_stay_the_same(service: str, key: int, ids: list[int]) -> None:
    length = {APNS: 64, "gcm": 152}[service]
    tokens = fake_tokens(service, key, np.array(ids, np.int64))
    assert all(re.fullmatch(rb"FAKE-[A-Z0-9]{%d}" % length, token) for token in tokens)
    assert len(set(tokens)) == len(ids)
    assert tokens == [fake_tokens(service, key, np.array([seq_id]))[0] for seq_id in ids]


def test_golden_fake_token() -> None:
    [token] = fake_tokens(APNS, KEY, np.array([42]))
    assert token == b"FAKE-7AMH5OKK59MGXWKVC6JR4ED0UYKSXTVT5HBED3GPHXOXZ2WHTMIA8YUV3JIMVMDR"


@given(values=st.lists(texts, max_size=8))
def test_escaping(values: list[str]) -> None:
    escaped = escape_texts([text.encode() for text in values])
    assert [json.loads(b'"%b"' % text) for text in escaped] == values
    assert escaped == [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in values]


def test_what_needs_no_escaping_stays_the_same_object() -> None:
    plain = [b"a", b"\xc3\xa9", b""]
    assert escape_texts(plain) is plain
    mixed = escape_texts([*plain, b'"'])
    assert all(mixed[place] is text for place, text in enumerate(plain))
