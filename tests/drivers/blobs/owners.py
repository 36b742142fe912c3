"""Whoever the files belong to, and who knows nothing of Carillon: what they put, see and delete, in their way."""

import re
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from xml.sax.saxutils import unescape


class Owner(Protocol):
    """Puts and deletes objects by their paths, behind Carillon's back."""

    def put(self, path: str, content: bytes) -> None: ...

    def get(self, path: str) -> bytes: ...

    def delete(self, path: str) -> None: ...

    def unfinished(self, bucket: str) -> int:
        """Writes that neither ended nor were cleared away."""


class BucketOwner:
    """By plain HTTP: moto wants some name, and no signature."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, bucket: str) -> None:
        self._ask("PUT", bucket)

    def remove(self, bucket: str) -> None:
        listing = self._ask("GET", f"{bucket}?list-type=2").decode()
        for key in re.findall(r"<Key>(.*?)</Key>", listing, re.DOTALL):
            self.delete(f"{bucket}/{unescape(key)}")
        self._ask("DELETE", bucket)

    def put(self, path: str, content: bytes) -> None:
        self._ask("PUT", quote(path), content)

    def get(self, path: str) -> bytes:
        return self._ask("GET", quote(path))

    def delete(self, path: str) -> None:
        self._ask("DELETE", quote(path))

    def unfinished(self, bucket: str) -> int:
        return self._ask("GET", f"{bucket}?uploads").count(b"<UploadId>")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self._url}/{path}", data=body, method=method)
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=owner/20260101/us-east-1/s3/aws4_request")
        request.add_header("Content-Type", "text/csv")
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
        return content


class FolderOwner:
    """With an editor, in place: a file that is changed stays the same file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def get(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def delete(self, path: str) -> None:
        (self.folder / path).unlink()

    def unfinished(self, bucket: str) -> int:
        drafts = (self.folder / ".partial", self.folder / ".parts")
        return sum(len(list(each.iterdir())) for each in drafts if each.exists())


async def parts(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content
