"""No mail: for deployments without a mail server."""

from shared.domain.jobs.mails import Letter


class NoMail:
    """`Mail` without a server. Callers check `delivers` and send nothing."""

    delivers = False

    async def send(self, letter: Letter) -> None:
        pass

    async def verify(self) -> None:
        pass

    async def close(self) -> None:
        pass
