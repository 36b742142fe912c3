"""Each implementation with a server of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mail.sinks import Sink, make_certificate, sendgrid, smtp


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["plain SMTP", "STARTTLS", "STARTTLS and login", "SMTPS and login", "SendGrid"])
async def sink(request: pytest.FixtureRequest, certificate: Path) -> AsyncIterator[Sink]:
    match request.param:
        case "plain SMTP":
            opened = smtp()
        case "STARTTLS":
            opened = smtp(certificate)
        case "STARTTLS and login":
            opened = smtp(certificate, login=True)
        case "SMTPS and login":
            opened = smtp(certificate, scheme="smtps", login=True, auth_require_tls=False)
        case _:
            async with sendgrid() as posted:
                yield posted
            return
    async with opened as started:
        yield started
