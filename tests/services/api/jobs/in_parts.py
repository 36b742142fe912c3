"""Uploads in parts by the API: what several tests ask for."""

from typing import Any

from shared.jobs.rules.uploads import MIN_PART_BYTES, FileUpload, upload_key
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

LARGE = b"id\n" + b"u1\n" * (MIN_PART_BYTES // 3)


async def put(api: Client, app_id: str, part: Any, content: bytes, upload: str = "") -> Reply:
    return await api.send("PUT", f"/apps/{app_id}/uploads?part={part}&upload={upload}", content)


async def known_of(house: House, app_id: str, upload: str) -> FileUpload:
    known = await house.store.uploads.get(upload_key(app_id, upload))
    assert known is not None
    return known


async def content_of(house: House, path: str) -> bytes:
    blob = await house.blobs.stat(path)
    return b"".join([chunk async for chunk in house.blobs.read(blob, 0, blob.size)])
