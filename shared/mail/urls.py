"""The URL of a mail server: `scheme://user:password@host:port?tls=required`."""

from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from shared.domain.errors import Invalid

_FIELD = "mail.url"


class Tls(StrEnum):
    """When a connection is encrypted."""

    REQUIRED = "required"
    OFFERED = "offered"  # if the server can
    NEVER = "never"


class Server(Struct, frozen=True):
    """The address of a mail server, and the login. `port` and `tls` are `None` if the URL has none."""

    scheme: str
    host: str
    port: int | None
    user: str
    password: str
    tls: Tls | None

    def __repr__(self) -> str:
        return f"Server({self.scheme}://{self.host})"


def read_url(url: str, *schemes: str) -> Server:
    """The server in the URL; special characters of the login are percent-encoded there.

    Raises:
        Invalid: it is no URL of these schemes. The error shows nothing of it.
    """
    try:
        parts = urlsplit(url)
        options, port = dict(parse_qsl(parts.query, keep_blank_values=True)), parts.port
    except ValueError:
        raise Invalid("not a URL, as in smtp://user:password@host:587", field=_FIELD) from None
    if parts.scheme not in schemes or not parts.hostname or parts.path not in {"", "/"} or parts.fragment:
        raise Invalid(f"{', '.join(f'{scheme}://' for scheme in schemes)} and a host are needed", field=_FIELD)
    return Server(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=_tls(options),
    )


def _tls(options: dict[str, str]) -> Tls | None:
    if options.keys() - {"tls"}:
        raise Invalid("a mail server's URL has one option, tls", field=_FIELD)
    try:
        return Tls(options["tls"]) if options else None
    except ValueError:
        raise Invalid(f"tls is one of {', '.join(Tls)}", field=_FIELD) from None
