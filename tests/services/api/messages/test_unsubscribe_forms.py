"""What strangers post to a link is read without a fault, and means what mail programs mean by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.messages.unsubscribing import _read_wish

MULTIPART = "multipart/form-data; boundary=b"
HEAD = b'--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n'
TAIL = b"\r\n--b--\r\n"


@given(st.text(st.characters(max_codepoint=255), max_size=80), st.binary(max_size=200))
def test_no_form_is_a_fault(kind: str, content: bytes) -> None:
    for prefix in ("", MULTIPART, "multipart/form-data;"):
        assert isinstance(_read_wish(prefix + kind, content), str)
        assert isinstance(_read_wish(prefix + kind, HEAD + content + TAIL), str)


@pytest.mark.parametrize("ends", [b"\r\n", b"\n"])
@pytest.mark.parametrize("encoding", [b"", b"Content-Transfer-Encoding: 8bit", b"Content-Type: text/plain"])
def test_a_part_of_a_form_may_say_more_of_itself(ends: bytes, encoding: bytes) -> None:
    other = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nCome-Back\r\n'
    body = other + HEAD + (encoding + b"\r\n" if encoding else b"") + b"\r\nOne-Click" + TAIL
    assert _read_wish(MULTIPART, body.replace(b"\r\n", ends)) == "One-Click"


def test_another_fields_value_is_none_of_ours() -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nList-Unsubscribe=One-Click\r\n--b--\r\n'
    assert _read_wish(MULTIPART, body) == ""
    assert _read_wish("application/x-www-form-urlencoded", b"x=List-Unsubscribe&y=One-Click") == ""
