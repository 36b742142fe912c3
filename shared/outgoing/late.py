"""Opens the HTTP client at the first call: importing aiohttp reads every certificate that the system trusts, and many
deployments make no calls."""

from collections.abc import Callable

from shared.outgoing import Answer, Call, Outgoing, PostedAnswer, Posting
from shared.runtime.late import Late


class LateOutgoing:
    """See `shared.outgoing.Outgoing`."""

    def __init__(self, load: Callable[[], Callable[[], Outgoing]]) -> None:
        self._late = Late("the HTTP client", load)

    async def call(self, request: Call) -> Answer:
        return await (await self._late.get()).call(request)

    async def post(self, posting: Posting) -> PostedAnswer:
        return await (await self._late.get()).post(posting)

    async def close(self) -> None:
        await self._late.close()
