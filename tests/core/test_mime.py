"""Mails as bytes: the standard library's parser reads what was written."""

from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import default

from hypothesis import example, given
from hypothesis import strategies as st

from shared.core.mail import build_mail, encode_words, mailbox

LINES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"]), max_size=200
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\r"), max_size=2_000)


def read(mail: bytes) -> EmailMessage:
    parsed = message_from_bytes(mail, policy=default)
    assert not parsed.defects
    return parsed


def words_of(part: MIMEPart | None) -> str:
    assert part is not None and not part.defects
    return str(part.get_content()).replace("\r\n", "\n")


@given(LINES)
@example("a" * 61)
@example("=?utf-8?b?eHg=?=")
@example(" a ")
@example("é" * 200)
@example("😀" * 50)
@example("a" * 900)
def test_a_subject_reads_as_it_was(subject: str) -> None:
    written = encode_words(subject, "Subject")
    assert all(len(line) <= 76 for line in f"Subject: {written}".split("\r\n"))
    assert str(read(build_mail({"Subject": written}, text="x", html=""))["Subject"]) == subject


@given(LINES, st.sampled_from(["To", "From", "Reply-To", "X-A-Header-Of-Thirty-Characters"]))
@example("é" * 200, "From")
@example("a" * 61, "From")
def test_a_line_with_a_name_in_encoded_words_has_76_characters(name: str, header: str) -> None:
    lines = f"{header}: {mailbox(header, 'news@example.com', name)}".split("\r\n")
    assert all(len(line) <= 76 for line in lines if "=?" in line)


@given(TEXTS, TEXTS)
@example(".\n..\n.x", "")
@example("trailing \n\t\n", "<p>")
@example("--=_carillon--", "--=_carillon")
@example("x" * 2_000, "ä" * 2_000)
def test_texts_read_as_they_were(text: str, html: str) -> None:
    mail = build_mail({"Subject": "s"}, text=text, html=html)
    parsed = read(mail)
    if text or not html:
        assert words_of(parsed.get_body(("plain",))) == text
    if html:
        assert words_of(parsed.get_body(("html",))) == html
    assert parsed.is_multipart() == bool(text and html)
    assert all(len(line) <= 78 for line in mail.split(b"\r\n"))
    assert b"\n" not in mail.replace(b"\r\n", b"")


# Of longer names Python's parser reads two words where RFC 2047 knows one.
@given(LINES.map(lambda line: line[:11]))
@example('Doe, "Jane" \\')
@example("a.b")
def test_a_name_reads_as_it_was(name: str) -> None:
    (address,) = read(build_mail({"From": mailbox("From", "news@example.com", name)}, text="", html=""))[
        "From"
    ].addresses
    assert (address.display_name, address.addr_spec) == (" ".join(name.split()), "news@example.com")


def test_an_odd_mailbox_is_quoted() -> None:
    assert mailbox("To", "o'neil+x@example.com") == "<o'neil+x@example.com>"
    assert mailbox("To", "a,b@example.com") == '<"a,b"@example.com>'
