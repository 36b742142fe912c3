"""The body of an answer, decoded as it arrives, and with an end: a few kilobytes can stand for gigabytes."""

import zlib
from collections.abc import Sequence

import httpx

from carillon.errors import CarillonError

MOST_BYTES = 64 * 2**20
"""More than any answer of Carillon's has, when it is decoded."""

_ENCODING = "Content-Encoding"
_GZIP = zlib.MAX_WBITS | 16


class AnswerBody:
    """The part of an answer's body that has arrived. A body in an encoding that was not asked for is left as it is."""

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._headers = httpx.Headers(headers)
        self._content = bytearray()
        # httpx would decode what it knows, and without an end.
        encoding = self._headers.pop(_ENCODING, "").strip().lower()
        self._decoder = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def add(self, part: bytes) -> None:
        """Decode what follows.

        Raises:
            CarillonError: the body is too long.
            httpx.DecodingError: it is not encoded as its head says.
        """
        left = MOST_BYTES - len(self._content)
        decoded = self._decode(part, left + 1)
        if len(decoded) > left:
            raise CarillonError(f"the answer is longer than {MOST_BYTES // 2**20} MiB", status=self._status)
        self._content += decoded

    def response(self) -> httpx.Response:
        return httpx.Response(self._status, headers=self._headers, content=bytes(self._content))

    def _decode(self, part: bytes, most: int) -> bytes:
        if self._decoder is None:
            return part
        try:
            return self._decoder.decompress(part, most)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from error
