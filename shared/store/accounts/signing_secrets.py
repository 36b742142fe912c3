"""Signing secrets: the random bytes from which the secrets of a namespace are made, one document each."""

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.signing_secrets import NamespaceSecrets
from shared.store.documents import Aggregate, Codec, Document, insert_new

_codec = Codec(NamespaceSecrets)


class SigningSecretStore(Aggregate):
    """The `signing_secrets` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._secrets = database["signing_secrets"]

    async def get(self, namespace: str) -> NamespaceSecrets | None:
        """The secrets of a namespace; `None` if it never asked for one."""
        return _codec.maybe(await self._secrets.find_one({"_id": namespace}))

    async def replace(self, old: NamespaceSecrets | None, new: NamespaceSecrets) -> bool:
        """Replace the secrets; `False` if another process did so first."""
        document = _codec.document(new)
        if old is None:
            return not await insert_new(self._secrets, [document])
        unchanged = {"_id": old.id, "versions": _codec.document(old)["versions"]}
        return (await self._secrets.replace_one(unchanged, document)).matched_count == 1
