"""The certificate that a server shows: whether we trust it, and for how long."""

import asyncio
import ssl
import time
from contextlib import suppress
from typing import Any

from msgspec import Struct

from services.commands.doctor.findings import Opinions, fault, warn, well
from shared.domain.console.signs import ENDS_WITHIN_DAYS

_DAY_SECONDS = 86_400


class ShownCertificate(Struct, frozen=True):
    """For how many days it is good, or why we do not trust it."""

    days_left: float
    refused: str = ""


async def find_certificate(host: str, port: int, *, trust: ssl.SSLContext, greeting: bytes = b"") -> ShownCertificate:
    """The server's certificate, for a client that trusts these. Raises `OSError` where it does not speak TLS."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        if greeting:
            writer.write(greeting)
            if await reader.read(1) != b"S":
                return ShownCertificate(0, "it does not speak TLS")
        await writer.start_tls(trust, server_hostname=host)
        shown: dict[str, Any] = writer.get_extra_info("peercert")
    except ssl.SSLCertVerificationError as error:
        return ShownCertificate(0, error.verify_message or str(error))
    except (ssl.SSLError, ConnectionError, EOFError) as error:
        return ShownCertificate(0, f"no TLS connection can be made: {error}")
    finally:
        with suppress(OSError):
            writer.close()
    return ShownCertificate((ssl.cert_time_to_seconds(shown["notAfter"]) - time.time()) / _DAY_SECONDS)


def judge_certificate(address: str, shown: ShownCertificate) -> Opinions:
    """The opinions on it."""
    if shown.refused:
        return fault(f"the certificate of {address} is refused: {shown.refused}")
    if shown.days_left < ENDS_WITHIN_DAYS:
        return warn(f"the certificate of {address} ends in {shown.days_left:.0f} days")
    return well(f"the certificate of {address} is good for {shown.days_left:.0f} days")
