"""The address of a deployment, and the parts of a path, a query and a header below it: checked before anything is
sent."""

import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from carillon.attempts import Query

# Keys, ids and timestamps. Anything else would lead to another path: a slash even when it is quoted.
_SEGMENT = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")
_HEADER = re.compile(r"(?! )[^\x00-\x1f\x7f]*(?<! )")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """The base URL without a user and a password before its host, and the header that these are.

    Raises:
        ValueError: it is no base URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"base_url is like https://carillon.example.com, not {url!r}")
    credentials, _, host = parts.netloc.rpartition("@")
    header = {"Authorization": _basic(credentials)} if credentials else {}
    return parts._replace(netloc=host).geturl().rstrip("/"), header


def path_of(*segments: str) -> str:
    """The path of these segments. Raises `ValueError` for one that cannot stand there."""
    for segment in segments:
        if _SEGMENT.fullmatch(segment) is None or segment in {".", ".."}:
            raise ValueError(f"a key or an id has 1 to 255 of letters, digits and - _ . ~ :, not {segment!r}")
    return "/" + "/".join(segments)


def query_of(**parameters: str) -> Query:
    """The query of those parameters that are given."""
    return {name: text for name, text in parameters.items() if text}


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The same headers. Raises `ValueError`, which shows no secret, for a value that cannot stand in one."""
    for name, text in headers.items():
        if _HEADER.fullmatch(text) is None:
            raise ValueError(f"{name}: a header holds no control characters, and no space at its ends")
    return headers


def _basic(credentials: str) -> str:
    user, _, password = credentials.partition(":")
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
