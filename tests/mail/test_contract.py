"""What every implementation promises, each against a server of its kind."""

import asyncio
from time import monotonic

import pytest
from structlog.testing import capture_logs

from shared.domain.errors import Invalid, Unavailable
from tests.mail.sinks import PATIENCE, SENDER, Mailed, Sink, letter

LONG_ID = f"{'j' * 36}.circuitbreak.{'9' * 19}@{'d' * 60}.example.com"


async def test_a_letter_arrives_whole(sink: Sink) -> None:
    sent = letter()
    await sink.mail.send(sent)
    assert sink.mailed == [
        Mailed(
            id=f"<{sent.id}>",
            sender=(SENDER.name, SENDER.address),
            envelope=sent.to,
            to=sent.to,
            subject=sent.subject,
            text=sent.text,
            automatic="auto-generated",
        )
    ]


async def test_a_letter_that_is_sent_again_has_the_same_id(sink: Sink) -> None:
    sent = letter(id=LONG_ID)
    mail = sink.mail
    await mail.send(sent)
    await mail.send(sent)
    assert [each.id for each in sink.mailed] == [f"<{LONG_ID}>"] * 2


async def test_long_lines_many_recipients_and_every_script(sink: Sink) -> None:
    to = tuple(f"somebody.number.{number}@example.com" for number in range(100))
    sent = letter(to=to, text=f"{'x' * 5_000}\n.\n..\nFrom here\n東京 {'é' * 2_000}\n", subject=f"東京 {'ø' * 200}")
    await sink.mail.send(sent)
    [arrived] = sink.mailed
    assert (arrived.to, arrived.envelope, arrived.subject, arrived.text) == (to, to, sent.subject, sent.text)


async def test_a_domain_is_told_as_dns_has_it(sink: Sink) -> None:
    await sink.mail.send(letter(to=("ana@bücher.example", "ana@xn--bcher-kva.example")))
    assert [each.to for each in sink.mailed] == [("ana@xn--bcher-kva.example",)]


async def test_an_address_that_cannot_be_told_is_left_out(sink: Sink) -> None:
    with capture_logs() as lines:
        await sink.mail.send(letter(to=("zoë.the.first@example.com", "bob@example.org")))
    assert [each.envelope for each in sink.mailed] == [("bob@example.org",)]
    assert [line["recipients"] for line in lines if line["log_level"] == "warning"] == [["z…@example.com"]]
    with pytest.raises(Invalid):
        await sink.mail.send(letter(to=("zoë@example.com", f"ana@{'x' * 64}.example")))
    assert len(sink.mailed) == 1


async def test_what_is_refused_for_now_can_be_sent_later(sink: Sink) -> None:
    mail = sink.mail
    for code in sink.later:
        sink.fail(code)
        with pytest.raises(Unavailable, match=str(code)) as caught:
            await mail.send(letter())
        assert "ana@" not in str(caught.value)
    assert sink.mailed == []


async def test_what_is_refused_for_good_is_an_error_of_its_own(sink: Sink) -> None:
    mail = sink.mail
    for code in sink.never:
        sink.fail(code)
        with pytest.raises(Invalid, match=str(code)) as caught:
            await mail.send(letter())
        assert "ana@" not in str(caught.value)
    assert sink.mailed == []


async def test_a_server_that_falls_silent_is_waited_for_until_the_deadline(sink: Sink) -> None:
    sink.hang()
    began = monotonic()
    with pytest.raises(Unavailable, match="did not answer"):
        await sink.open(timeout_seconds=0.3).send(letter())
    assert 0.25 < monotonic() - began < 30


async def test_sending_can_be_cancelled(sink: Sink) -> None:
    sink.hang()
    sending = asyncio.create_task(sink.mail.send(letter()))
    async with asyncio.timeout(PATIENCE):
        await sink.asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_letters_may_be_sent_side_by_side_and_closing_ends_nothing_else(sink: Sink) -> None:
    mail = sink.mail
    letters = [letter(id=f"{number}@example.com") for number in range(10)]
    await asyncio.gather(*map(mail.send, letters))
    assert {each.id for each in sink.mailed} == {f"<{each.id}>" for each in letters}
    await mail.close()
    await mail.close()


async def test_whether_the_server_lets_us_in_is_found_out_without_a_mail(sink: Sink) -> None:
    await sink.mail.verify()
    assert sink.mailed == []
