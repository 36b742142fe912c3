"""What a rendered mail becomes: its headers are of its recipient's link alone, and nobody adds others by it."""

import pytest

from shared.providers.mailing import read_mail

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
