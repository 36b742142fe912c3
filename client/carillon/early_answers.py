"""The bookkeeping of a stream that hears an answer while a request is still being sent.

httpcore reads when it has sent the whole of a request. A server that refuses a large one answers earlier, and may close
the connection without reading the rest; the answer is lost then, behind an error of the connection. So:

- after a head with `Expect: 100-continue`, the content waits for what the server says;
- while large content is sent, the server is listened to.

Once the server has said something final, the next write is a `WriteError`: httpcore takes that for a connection that
was closed by a server which has answered, sends no more, and reads the answer.
"""

from collections.abc import Sequence

EXPECT = {"Expect": "100-continue"}
READ_BYTES = 64 * 2**10
LARGE_BYTES = 64 * 2**10  # what is smaller is sent at once
HEARD_BYTES = 128 * 2**10  # more than the head of any answer

_CONTINUE = b"100"
_EXPECT_LINE = b"\r\nExpect: 100-continue\r\n"


class Progress:
    """How far a request is, and what was heard meanwhile. The first write after a read is the head of a request, the
    others are its content."""

    def __init__(self) -> None:
        self.heard = b""
        self._head_sent = False
        self._consent_asked = False

    def take_heard(self) -> bytes:
        """The bytes that were heard before the answer is read; the next write is that of another request."""
        self._head_sent = self._consent_asked = False
        heard, self.heard = self.heard, b""
        return heard

    def note_write(self, buffer: bytes) -> bool:
        """Whether this is content, which is large or small, and not a head."""
        if self._head_sent:
            return True
        self._head_sent, self._consent_asked = True, _EXPECT_LINE in buffer
        return False

    def must_wait(self) -> bool:
        """Whether the content waits for a consent; true once."""
        asked, self._consent_asked = self._consent_asked, False
        return asked

    @property
    def allowed(self) -> bool:
        """Whether the server consented."""
        return _CONTINUE in statuses_of(self.heard)

    @property
    def ended(self) -> bool:
        """Whether the server said something more than 1xx, or more than can be meant."""
        return len(self.heard) > HEARD_BYTES or is_final(statuses_of(self.heard))


def statuses_of(heard: bytes) -> list[bytes]:
    """The statuses that an answer has shown so far: any number of 1xx, when their heads are complete, and another."""
    found = []
    while len(heard) >= len("HTTP/1.1 200"):
        status = heard[9:12]
        if status.startswith(b"1"):
            _, end, heard = heard.partition(b"\r\n\r\n")
            if not end:
                break
        else:
            heard = b""
        found.append(status)
    return found


def is_final(statuses: Sequence[bytes]) -> bool:
    """Whether something more than 1xx was said."""
    return any(not status.startswith(b"1") for status in statuses)
