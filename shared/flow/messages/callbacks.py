"""Callbacks of providers: from an unauthenticated request to entries in the ledger.

credential ──> its secret, opened once ──> the kind verifies and reads ──> receipts, or a confirmed subscription
"""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

import structlog
from cachetools import LRUCache

from shared.domain.errors import Conflict, Invalid, NotFound, Unavailable
from shared.domain.messages.credentials import Credential
from shared.flow.messages.receipts import Receipts
from shared.outgoing import Blocked, Outgoing, Posting, Unreachable
from shared.providers import ProviderKind
from shared.providers.callbacks import Callback, CallbackRequest, NotSigned
from shared.runtime.coalescer import Coalescer
from shared.runtime.metrics import CALLBACKS
from shared.secrets import KeyRing
from shared.store import Store

_SECRETS = 1_000
_CONFIRM_SECONDS = 5.0

log = structlog.get_logger(__name__)


class CallbackFlow:
    """Accepts reports of providers about messages of credentials."""

    def __init__(
        self,
        store: Store,
        load_kinds: Callable[[], Mapping[str, ProviderKind]],
        keys: KeyRing,
        outgoing: Outgoing,
        receipts: Receipts,
    ) -> None:
        self._store = store
        self._load_kinds = load_kinds
        self._keys = keys
        self._outgoing = outgoing
        self._receipts = receipts
        self._find = Coalescer(self._find_all)
        # Keyed by the sealed secret, so a replaced secret is not found here.
        self._secrets: LRUCache[tuple[str, str], Mapping[str, str]] = LRUCache(_SECRETS)

    async def require(self, credential_id: str) -> Credential:
        """The credential with this id. Raises `NotFound` also if providers of its kind send no callbacks."""
        credential = await self._find(credential_id)
        if credential is None or credential.kind not in self._load_kinds():
            raise NotFound("there is nobody here to be told", field="credentialId")
        return credential

    async def take(self, credential: Credential, request: CallbackRequest) -> None:
        """Store the contents of the request if the provider has signed it.

        Raises:
            NotSigned: the provider has not signed it.
            Invalid: it is signed but cannot be read.
            NotFound: providers of this kind send no callbacks.
            EarlyNews, Unavailable: the provider has to repeat it later.
        """
        callback = await self._read(credential, request)
        if callback.confirm_url:
            await self._confirm(credential, callback.confirm_url)
        await self._receipts.fold(credential, self._load_kinds()[credential.kind].channel, callback)

    async def _read(self, credential: Credential, request: CallbackRequest) -> Callback:
        kind = self._load_kinds()[credential.kind]
        try:
            return await kind.read_callback(credential.fields, self._open_secret(credential), request, self._outgoing)
        except NotSigned as error:
            CALLBACKS.labels(credential.kind, "refused").inc()
            log.warning("a callback is not the provider's", credential=credential.id, reason=error.reason)
            raise
        except Invalid as error:
            CALLBACKS.labels(credential.kind, "malformed").inc()
            log.warning("a provider's callback cannot be read", credential=credential.id, reason=error.reason)
            raise

    def _open_secret(self, credential: Credential) -> Mapping[str, str]:
        if not credential.secret:
            return {}
        opened = self._secrets.get((credential.id, credential.secret))
        if opened is None:
            try:
                opened = self._keys.open(credential.secret, credential.id)
            except Conflict as error:
                # The provider did nothing wrong, and an operator may put the key back.
                raise Unavailable(f"credential {credential.id}: {error.reason}") from None
            self._secrets[credential.id, credential.secret] = opened
        return opened

    async def _confirm(self, credential: Credential, url: str) -> None:
        posting = Posting(url, {}, b"", _CONFIRM_SECONDS, lambda: True, method="GET")
        try:
            answer = await self._outgoing.post(posting)
        except (Unreachable, Blocked) as error:
            raise Unavailable(f"the subscription cannot be confirmed: {error}") from None
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise Unavailable(f"the subscription cannot be confirmed: {answer.status}")
        CALLBACKS.labels(credential.kind, "subscription").inc()
        log.info("a subscription to callbacks is confirmed", credential=credential.id)

    async def _find_all(self, ids: Sequence[str]) -> list[Credential | None]:
        found = await self._store.credentials.with_ids(sorted(set(ids)))
        return [found.get(credential_id) for credential_id in ids]
