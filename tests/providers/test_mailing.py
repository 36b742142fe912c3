"""What a rendered mail becomes: its headers are of its recipient's link alone, and nobody adds others by it."""

import pytest

from shared.providers.mailing import in_ascii, is_dead_address, read_mail

MAIL = {"subject": "Hi", "text": "there"}


def test_a_link_becomes_the_button_of_mail_programs() -> None:
    assert read_mail(MAIL | {"unsubscribeUrl": "https://x.example/u/T-_1"}).headers == {
        "List-Unsubscribe": "<https://x.example/u/T-_1>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def test_one_click_is_offered_over_https_alone() -> None:
    link = {"unsubscribeUrl": "http://localhost:8080/u/T"}
    assert read_mail(MAIL | link).headers == {"List-Unsubscribe": "<http://localhost:8080/u/T>"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        "mailto:all@example.com",
        "https://x.example/\r\nBcc: all@example.com",
        "https://x.example/u/1>, <https://evil.example/",
        "https://x.example/u/ 1",
        "https://x.exämple/u/1",
        ["https://x.example/u/1"],
    ],
)
def test_what_is_no_link_adds_nothing(url: object) -> None:
    assert read_mail(MAIL | {"unsubscribeUrl": url}).headers == {}


def test_no_content_brings_headers_of_its_own() -> None:
    assert read_mail(MAIL | {"headers": {"Bcc": "all@example.com"}}).headers == {}


@pytest.mark.parametrize(
    "words",
    [
        "5.1.1 <ana@example.com>: Recipient address rejected",
        "smtp; 550 5.1.10 RESOLVER.ADR.RecipientNotFound",
        "5.2.1 mailbox disabled",
        "5.1.2 bad destination system",
        "user unknown",
        "No such user here",
        "Recipient unknown",
        "mailbox does not exist",
    ],
)
def test_a_dead_address_is_told_by_its_code_or_plain_words(words: str) -> None:
    assert is_dead_address(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "no",
        "5.1.8 Sender address rejected: Domain not found",
        "5.2.2 Mailbox full",
        "relay not permitted",
        "5.7.1 user unknown to our reputation service",
        "5.1.0 address rejected",
        "4.1.1 user unknown, try later",
        "blocked by 5.1.1.9, see our policy",
        "mailbox unavailable",
        "Sender address does not exist",
        "sender mailbox unknown",
        "5.1.1 <bounce@us.example>: sender address rejected: user unknown",
        "Verification failed for <us@x.de>\nResponse: 550 5.1.1 <us@x.de>: user unknown\nSender verify failed",
        "the address does not exist in MAIL FROM",
        "5.1.1 callout to verify return path: no such user",
        "5.2.1 The user is receiving mail at a rate that prevents additional messages from being delivered",
        "5.2.1 The user you are trying to contact is receiving mail too quickly",
    ],
)
def test_all_other_refusals_say_nothing_of_the_address(words: str) -> None:
    assert not is_dead_address(words)


def test_a_code_is_believed_before_the_providers_own_word() -> None:
    assert is_dead_address("", otherwise=True)
    assert not is_dead_address("550 5.2.2 Mailbox full", otherwise=True)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ana@\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com", "ana@xn--mgba3gch31f060k.com"),
        ("ana@ශ්\u200dරී.com", "ana@xn--10cl1a0b660p.com"),
        ("ana@straße.de", "ana@xn--strae-oqa.de"),
        ("ana@\u200bexample.com", "ana@example.com"),
        ("jörg@example.com", None),
        ("ana example@example.com", None),
        ("ana@example.com\r\nRCPT TO:<bob@example.com>", None),
    ],
)
def test_an_address_is_told_with_its_domain_as_dns_has_it(address: str, told: str | None) -> None:
    assert in_ascii(address) == told
