"""Mail by SendGrid's API, version 3: one POST per letter.

The URL is `sendgrid://apikey:<key>@api.sendgrid.com`: the key is in the place of a password, and is hidden like one.
`?tls=never` uses plain HTTP, for a gateway on the same machine.
"""

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol, Self

import msgspec

from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.mail import Letter, MailSender, mask_addresses, tellable
from shared.mail.urls import Tls, read_url

_SANDBOX: dict[str, object] = {"mail_settings": {"sandbox_mode": {"enable": True}}}
_PATH = "/v3/mail/send"
_KEY = re.compile(r"[\x21-\x7e]+")
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_STRANGERS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class PostAnswer(Protocol):
    """The answer to a posting: the status, and the beginning of the body on one line."""

    @property
    def status(self) -> int: ...

    @property
    def excerpt(self) -> str: ...


class Post(Protocol):
    """Makes one HTTP POST. Services that may call the Internet provide it."""

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes, message_id: str) -> PostAnswer:
        """Return the answer, whatever its status. Raises `Unavailable` without an answer, `Invalid` if the URL must
        not be called."""


class SendGridMail:
    """SendGrid, or a server that speaks like it."""

    delivers = True

    def __init__(self, url: str, key: str, sender: MailSender, post: Post, timeout_seconds: float) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._sender = sender
        self._post = post
        self._timeout_seconds = timeout_seconds

    @classmethod
    def open(cls, url: str, *, sender: MailSender, post: Post, timeout_seconds: float) -> Self:
        """Prepare to send.

        Raises:
            Invalid: the URL does not name SendGrid, or has no key.
        """
        server = read_url(url, "sendgrid")
        if not _KEY.fullmatch(server.password):
            raise Invalid("a key is needed, as in sendgrid://apikey:<key>@api.sendgrid.com", field="mail.url")
        host = f"[{server.host}]" if ":" in server.host else server.host
        place = host if server.port is None else f"{host}:{server.port}"
        scheme = "http" if server.tls is Tls.NEVER else "https"
        return cls(f"{scheme}://{place}{_PATH}", server.password, sender, post, timeout_seconds)

    async def send(self, letter: Letter) -> None:
        await self._call(_mail(letter, self._sender, tellable(letter)), letter.id)

    async def verify(self) -> None:
        # In its sandbox, SendGrid judges a mail like any other, and does not send it.
        letter = Letter(id="doctor@carillon", to=(self._sender.address,), subject="doctor", text="doctor")
        await self._call(_mail(letter, self._sender, letter.to) | _SANDBOX, letter.id)

    async def close(self) -> None: ...

    async def _call(self, mail: dict[str, object], message_id: str) -> None:
        body = msgspec.json.encode(mail)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._post(self._url, headers=self._headers, body=body, message_id=message_id)
        except TimeoutError:
            raise Unavailable(f"SendGrid did not answer within {self._timeout_seconds:g} s") from None
        _check(answer)


def _check(answer: PostAnswer) -> None:
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    reason = f"SendGrid answers {answer.status}: {mask_addresses(answer.excerpt)}".rstrip(": ")
    if answer.status in _LATER or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unavailable(reason)
    if answer.status in _STRANGERS:
        raise Unauthorized(reason)
    raise Invalid(reason)


def _mail(letter: Letter, sender: MailSender, recipients: tuple[str, ...]) -> dict[str, object]:
    return {
        "personalizations": [{"to": [{"email": address} for address in recipients]}],
        "from": {"email": sender.address, "name": sender.name},
        "subject": letter.subject,
        "content": [{"type": "text/plain", "value": letter.text}],
        "headers": {"Message-ID": f"<{letter.id}>", "Auto-Submitted": "auto-generated"},
    }
