"""What is written for a message, read again by an AMQP codec that is not ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from shared.clock.rules.callbacks import Header, QueueMessage, Undeliverable
from shared.drivers.rabbitmq.confirms import frames

MESSAGE = QueueMessage("", "orders", b"{}", "id-1", {})
FRAME_MAX = 4_096

words = st.text(st.characters(codec="utf-8"), max_size=60)
values = words | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
tables = st.dictionaries(st.text("abcdefghij-ä", min_size=1, max_size=40), values, max_size=8)


@given(exchange=words, key=words, name=words, kind=words, table=tables, size=st.integers(0, 3 * FRAME_MAX))
def test_another_codec_reads_the_same(
    exchange: str, key: str, name: str, kind: str, table: dict[str, Header], size: int
) -> None:
    body = bytes(number % 251 for number in range(size))
    written = b"".join(frames(QueueMessage(exchange, key, body, name, table, kind), 7, FRAME_MAX))
    read: list[object] = []
    while written:
        length, channel, one = frame.unmarshal(written)
        assert channel == 7 and length <= FRAME_MAX
        read.append(one)
        written = written[length:]
    publish, header, *rest = read
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == (exchange, key, True)
    assert not publish.immediate
    assert isinstance(header, ContentHeader)
    seen = header.properties
    assert (seen.content_type or "", seen.message_id or "", seen.delivery_mode) == (kind, name, 2)
    assert seen.headers == table
    assert [type(value) for value in (seen.headers or {}).values()] == [type(value) for value in table.values()]
    assert header.body_size == size
    assert b"".join(part.value for part in rest if isinstance(part, ContentBody)) == body


UNSENDABLE = {
    "exchange": replace(MESSAGE, exchange="e" * 256),
    "routing key": replace(MESSAGE, routing_key="ä" * 128),
    "message id": replace(MESSAGE, message_id="i" * 256),
    "content type": replace(MESSAGE, content_type="t" * 256),
    "header name": replace(MESSAGE, headers={"n" * 256: 1}),
    "header CC": replace(MESSAGE, headers={"CC": "push.batch"}),
    "header BCC": replace(MESSAGE, headers={"BCC": "push.batch"}),
    "64 bits": replace(MESSAGE, headers={"big": 2**63}),
    "larger than": replace(MESSAGE, headers={"long": "x" * FRAME_MAX}),
    "Unicode": replace(MESSAGE, routing_key="\ud800"),
}


@pytest.mark.parametrize("reason", UNSENDABLE)
def test_what_would_cost_everybody_the_connection_is_refused(reason: str) -> None:
    with pytest.raises(Undeliverable, match=reason):
        frames(UNSENDABLE[reason], 1, FRAME_MAX)


def test_all_that_is_allowed_fits() -> None:
    longest = QueueMessage("e" * 255, "k" * 255, b"", "i" * 255, {"n" * 255: "x" * 100}, "t" * 255)
    assert frames(longest, 1, FRAME_MAX)
