"""No mail: for deployments without a server for it."""

from shared.domain.jobs.mails import Letter


class NoMail:
    """`Mail` that goes nowhere. Nobody should write one: `delivers` says so."""

    delivers = False

    async def send(self, letter: Letter) -> None:
        pass

    async def verify(self) -> None:
        pass

    async def close(self) -> None:
        pass
