"""One server and the questions to it. Each server has a module that says what is asked of it."""

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from services.commands.doctor.certificates import find_certificate, judge_certificate
from services.commands.doctor.findings import Opinion, Opinions, fault, warn, well
from services.commands.doctor.reach import connect, measure
from shared.domain.console.signs import ENDS_WITHIN_DAYS

ROUND_TRIPS = 5
LONG_ROUND_TRIP = 0.2


class Address(NamedTuple):
    """The address of a server. `greet` makes it speak TLS where it begins without; `None` where it begins with TLS."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, as far as its name tells."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.startswith("/")


class Question(Struct, frozen=True):
    """A question, and its `meaning`: what must be so for the answer to be `ok`.

    If the answer to one of the `first` is a fault, we are not let in, and the others are not asked: they would say the
    same. A question that `needs` other servers is asked when these have let us in.
    """

    name: str
    meaning: str
    ask: Callable[[Any], Awaitable[Opinions]]
    first: bool = False
    needs: tuple[str, ...] = ()


class Examination:
    """All that is asked of one server, or of the deployment."""

    of: ClassVar[str]
    questions: ClassVar[Sequence[Question]]

    where: str = ""
    """The words by which a reader knows the server. No secrets."""
    addresses: Sequence[Address] = ()
    uses_tls: bool = False
    tls_greeting: bytes = b""
    """The bytes that a client sends before TLS begins; one byte answers them."""

    setting: ClassVar[str] = ""
    """The setting with the server's URL."""
    weakness: str = ""
    """The harm that others could do to the connection, as `shared.runtime.weaknesses` finds it."""
    trust: ssl.SSLContext
    """Whom we trust to sign certificates."""

    async def check_address(self) -> Opinions:
        """Each address can be resolved and connected to."""
        if not self.addresses:
            return well("its driver finds it")
        refused = [(address, reason) for address in self.addresses if (reason := await connect(*address))]
        if not refused:
            return well(f"{', '.join(map(str, self.addresses))} can be connected to")
        said = "; ".join(f"{address}: {reason}" for address, reason in refused)
        return fault(said) if len(refused) == len(self.addresses) else warn(said)

    async def check_tls(self) -> Opinions:
        """The connection is encrypted, or stays on this machine; the certificate is good for a while."""
        if self.weakness:
            return warn(self.weakness)
        if not self.uses_tls and all(address.is_loopback for address in self.addresses):
            return well("not needed: the connection stays on this machine")
        if not self.uses_tls or not self.addresses:
            return well("its driver verifies whom it talks to")
        opinions: list[Opinion] = []
        for address in self.addresses:
            found = await find_certificate(*address, trust=self.trust, greeting=self.tls_greeting)
            opinions += judge_certificate(str(address), found)
        return opinions

    async def ping(self) -> None:
        """Ask something that costs the server nothing."""

    async def check_round_trip(self) -> Opinions:
        """It answers quickly."""
        seconds = min([await measure(self.ping) for _ in range(ROUND_TRIPS)])
        said = f"an answer takes {seconds * 1000:.1f} ms"
        if seconds < LONG_ROUND_TRIP:
            return well(said)
        return warn(f"{said}; over {LONG_ROUND_TRIP * 1000:.0f} makes everything slow")


ADDRESS = Question(
    "address",
    "The name of the server resolves, and the port takes connections. If not: is it running, is the URL right, does a "
    "firewall stand between?",
    Examination.check_address,
    first=True,
)
ROUND_TRIP = Question(
    "round trip",
    "The quickest of five answers takes less than 200 ms. If not, how far away is the server, and how busy?",
    Examination.check_round_trip,
    first=True,  # before the other questions, which keep the server busy
)
TLS = Question(
    "tls",
    "The connection is encrypted, or stays on this machine. The certificate has the server's name and a trusted "
    f"signer, and is good for {ENDS_WITHIN_DAYS} days at least.",
    Examination.check_tls,
)
