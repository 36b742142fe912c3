"""`/ui/files/…`: styles, scripts and icons. A file's address has its digest, so a browser keeps it for a year.
They are compressed once, for all who read that."""

import gzip
import hashlib
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from services.api.http.rights import EVERYBODY

_FOLDER = files("services.api.http.pages") / "assets"
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_DIGEST_CHARACTERS = 12
_KEPT = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
_PACKED = _KEPT | {"content-encoding": "gzip"}


class PageFiles:
    """The files of the dashboard, each by an address that changes with it."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._packed: dict[str, bytes] = {}
        self._names: dict[str, str] = {}
        for file in _FOLDER.iterdir():
            stem, _, kind = file.name.rpartition(".")
            if kind not in _TYPES:
                continue
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:_DIGEST_CHARACTERS]
            name = f"{stem}.{digest}.{kind}"
            self._contents[name], self._names[file.name] = content, name
            self._packed[name] = gzip.compress(content, mtime=0)

    def name(self, file: str) -> str:
        """The name of a file in its address. Raises `KeyError` where there is no such file."""
        return self._names[file]

    def handler(self) -> HTTPRouteHandler:
        """The route."""

        async def send_file(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
            content = self._contents.get(name)
            if content is None:
                return Response(b"", status_code=HTTPStatus.NOT_FOUND, media_type="text/plain")
            kind, headers = _TYPES[name.rpartition(".")[2]], _KEPT
            if "gzip" in request.headers.get("accept-encoding", ""):
                content, headers = self._packed[name], _PACKED
            return Response(content, media_type=kind, headers=headers)

        return HTTPRouteHandler("/ui/files/{name:str}", http_method=["GET"], opt={"who": EVERYBODY})(send_file)
