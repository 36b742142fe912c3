"""The questions to the mail server."""

from urllib.parse import urlsplit

from services.commands.doctor.examination import ADDRESS, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinions, well
from shared.mail import Mail

_PORTS = {"smtp": 587, "smtps": 465, "sendgrid": 443}


class MailServer(Examination):
    """The server that takes our mails."""

    of = "Mail"
    setting = "mail.url"

    def __init__(self, url: str, mail: Mail) -> None:
        parts = urlsplit(url)
        self._mail = mail
        self.addresses = [Address(parts.hostname or "", parts.port or _PORTS[parts.scheme])]
        self.uses_tls = parts.scheme != "smtp" and not parts.query
        self.where = str(self.addresses[0])

    async def check_login(self) -> Opinions:
        """It lets us in."""
        await self._mail.verify()
        return well("the mail server lets us in")

    questions = (
        ADDRESS,
        TLS,
        Question(
            "login",
            "The mail server accepts our login or key, over TLS where `mail.url` asks for it. No mail is sent: SMTP is "
            "left after the login, and SendGrid gets one for its sandbox.",
            check_login,
        ),
    )
