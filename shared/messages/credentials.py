"""The life of credentials: a credential is stored only if its provider accepts it.

A test message precedes each new credential and each new secret. If the provider accepts it, the change is stored;
otherwise the request is refused with the provider's words. A provider that does not answer is a refusal too: it
looks like a wrong host, and is no outage of Carillon. A secret is in the clear only between the request, or the
store, and the provider.

A pause that a provider has asked for may last a day. It is lifted if it is known to be over: the account's hold
ends, batches that were put back until then are due, and the clock feeds the credential.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, assert_never

import structlog
from msgspec import Struct
from msgspec.structs import replace

from shared.accounts.rules.apps import App, check_not_deleting
from shared.clock.rules.occurrences import once
from shared.core.errors import Conflict, Invalid, NotFound, Unavailable, suggest
from shared.core.ids import read_uuid
from shared.core.instants import from_ms, ms
from shared.drivers.http import Outgoing
from shared.drivers.secrets import KeyRing
from shared.messages.rules import answers
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import (
    CREDENTIALS_OF_AN_APP,
    WHY_CHARACTERS,
    Credential,
    CredentialStatus,
    check_credential,
    check_move,
    check_secret,
    trial_content,
)
from shared.messages.rules.pacing import lift
from shared.messages.rules.singles import credential_owner, singles_owner
from shared.providers import Provider, ProviderKind
from shared.providers.calls import ObservedProvider
from shared.runtime.clock import Clock
from shared.store import Store

log = structlog.get_logger(__name__)
_TRIES = 20
_JOBS = 1_000


async def lift_pause(store: Store, credential_id: str) -> None:
    """Send what waits for the credential as soon as its rate allows. An extra call does no harm: batches that are not
    due yet are put back again."""
    await _end_hold(store, credential_id)
    for job in await store.message_jobs.find_running(credential_id, limit=_JOBS):
        await store.message_batches.bring_forward(job.key)
    now = await store.now()
    owners = (credential_owner(credential_id), singles_owner(credential_id))
    await store.occurrences.add([once(owner, str(ms(now)), now, accepted_at=now) for owner in owners])


async def _end_hold(store: Store, credential_id: str) -> None:
    for _ in range(_TRIES):
        traffic = await store.credentials.get_traffic(credential_id)
        if traffic is None or not traffic.pace.hold_until_us:
            return
        if await store.credentials.change_traffic(credential_id, traffic.pace.seq, lift(traffic.pace), traffic.places):
            log.info("the pause of an account is lifted", credential=credential_id)
            return
    raise Unavailable("too many others change this account's pace")


_SHOWN = 100  # characters of an unknown name


async def find_credential(store: Store, app_id: str, written: str, *, field: str = "credential") -> Credential:
    """The credential that is meant, which the app owns or may use. Raises `Invalid` if there is none, or several apps
    share one with this name."""
    found = await _find_by_id(store, app_id, written) or await store.credentials.find_named(app_id, written)
    if found is not None:
        return found
    shared = await store.credentials.find_usable(app_id, written, limit=2)
    if len(shared) > 1:
        raise Invalid("several apps share a credential with this name: give its id", field=field, value=written)
    if not shared:
        own = await store.credentials.find_own(app_id, limit=CREDENTIALS_OF_AN_APP)
        hint = suggest(written, [credential.name for credential in own])
        reason = f"the app has no credential with the name or id {written[:_SHOWN]!r}{hint}"
        raise Invalid(reason, field=field, value=written)
    return shared[0]


async def _find_by_id(store: Store, app_id: str, written: str) -> Credential | None:
    try:
        credential_id = read_uuid(written, field="credential")
    except Invalid:
        return None
    found = await store.credentials.get(credential_id)
    return found if found is not None and app_id in found.usable_by else None


_SHORTEST_HIDDEN = 4
_MASK = "…"
_PAGE = 100
_LOOKS = 5
_PLACES = ("host", "url", "apiUrl", "region")
"""Fields that name the server to call."""
IsInUse = Callable[[str], Awaitable[bool]]
"""Returns whether an open job uses the credential with this id."""
Claim = Callable[[Credential], Awaitable[Credential]]
"""Gives a draft the id under which it is to be stored."""


class Resealed(Struct, frozen=True):
    """Numbers of secrets: sealed anew, still under older keys, and among these those that no key opens."""

    resealed: int
    remaining: int
    unreadable: int


class CredentialFlow:
    """Makes and changes credentials, and opens their accounts. The kinds import drivers, so they are loaded on first
    use."""

    def __init__(
        self,
        store: Store,
        load_kinds: Callable[[], Mapping[str, ProviderKind]],
        keys: KeyRing,
        outgoing: Outgoing,
        clock: Clock,
        *,
        is_in_use: IsInUse,
    ) -> None:
        self._store = store
        self._load_kinds = load_kinds
        self._keys = keys
        self._outgoing = outgoing
        self._clock = clock
        self._is_in_use = is_in_use

    def channel_of(self, kind: str) -> Channel:
        return self._kind(kind).channel

    def repeats_within(self, credential: Credential) -> str:
        """The name of the provider that drops a second call with the same message id; `""` if a second call may send
        the message twice. Raises `Invalid` for an unknown kind."""
        within = self._kind(credential.kind).repeats_within(credential.fields)
        return f"{within}/{credential.fingerprint}" if within else ""

    def open(self, credential: Credential) -> Provider:
        """Open the account in the running event loop.

        Raises:
            Conflict: no key opens its secret.
            Invalid: this deployment does not know its kind.
        """
        return self._open(credential, self._open_secret(credential))

    async def create(self, draft: Credential, secret: Mapping[str, str], app: App, *, claim: Claim) -> Credential:
        """Send a test message, and store the credential under the id from `claim`. If that id exists, the request is a
        repetition, and the existing credential is returned.

        Raises:
            Invalid: a field breaks a rule, no key seals the secret, or the provider refuses the test message.
            Conflict: the app has a credential with this name, or too many, or is being deleted.
        """
        check_not_deleting(app, app.id)
        self._check(draft, secret)
        self._seal(draft, secret)  # before the provider is asked: it raises where there is no key
        await self._check_room(draft)
        await self._check_shared(draft)
        await self._send_trial(draft, secret)
        claimed = await claim(draft)
        credential = replace(claimed, **self._seal(claimed, secret))
        if not await self._store.credentials.add(credential):
            return await self.require(credential.id)
        # The app's deletion may have begun meanwhile and looked for credentials already.
        try:
            check_not_deleting(await self._store.apps.get(app.id), app.id)
        except Conflict:
            await self._store.credentials.remove(credential.id)
            raise
        return credential

    async def change(self, credential: Credential, apply: Callable[[Credential], Credential]) -> Credential:
        """Store the result of `apply`. If another request was faster, apply it to the newer credential.

        Raises:
            Invalid: a field breaks a rule.
            Conflict: the app has another credential with this name.
        """
        while True:
            changed = replace(apply(credential), updated_at=self.now())
            self._check_content(changed)
            if changed.shared_with != credential.shared_with:
                await self._check_shared(changed)
            stored = await self._store.credentials.change(credential, changed)
            if stored is not None:
                return stored
            credential = await self.require(credential.id)

    async def replace_secret(
        self, credential: Credential, fields: dict[str, Any], secret: Mapping[str, str]
    ) -> Credential:
        """Send a test message with the new secret and fields, then replace the old ones.

        Raises:
            Invalid: as `create`.
            Conflict: another request has replaced the secret meanwhile.
        """
        sealed = self._seal(credential, secret)
        candidate = replace(credential, fields=fields, **sealed)
        self._check(candidate, secret)
        await self._send_trial(candidate, secret)

        def swap(present: Credential) -> Credential:
            if (present.fingerprint, present.fields) != (credential.fingerprint, credential.fields):
                raise Conflict("another request replaced the secret; read the account and try again", field="secret")
            return present.with_secret(fields, sealed["secret"], sealed["fingerprint"])

        changed = await self.change(credential, swap)
        await lift_pause(self._store, credential.id)
        return changed

    async def test(self, credential: Credential) -> None:
        await self._send_trial(credential, self._open_secret(credential))

    async def move(self, credential: Credential, to: CredentialStatus, *, why: str = "") -> Credential:
        """Suspend or activate the credential; activation also ends a pause that its provider asked for. Raises
        `Conflict` if it has that status already."""
        check_move(credential, to)
        moved = await self._store.credentials.move(credential.id, to, why=why[:WHY_CHARACTERS], at=self.now())
        if moved is None:
            check_move(await self.require(credential.id), to)
            raise Conflict("another request changed the status of this account; read it and try again", field="status")
        if moved.status.sends:
            await lift_pause(self._store, credential.id)
        return moved

    async def reject(self, credential: Credential, detail: str) -> bool:
        """Note that the provider refuses this secret; `False` if that is known or the secret was replaced. So only one
        caller gets `True`, and informs the users."""
        moved = await self._store.credentials.move(
            credential.id,
            CredentialStatus.REJECTED,
            why=detail[:WHY_CHARACTERS],
            at=self.now(),
            secret=credential.secret,
        )
        if moved is not None:
            log.error("a provider refuses a credential", credential=credential.id, reason=detail)
        return moved is not None

    async def remove(self, credential: Credential) -> None:
        """Delete the credential. Raises `Conflict` while an open job uses it, or if jobs are made faster than this
        looks."""
        for _ in range(_LOOKS):
            uses = await self._store.credentials.count_uses(credential.id)
            if await self._is_in_use(credential.id):
                raise Conflict(
                    "open jobs or waiting messages are sent by this credential: stop them or wait", field="credentialId"
                )
            # A job stored after this look has counted its use, or finds no credential to count it in.
            if await self._store.credentials.remove_unused(credential.id, since=uses):
                return
            if await self._store.credentials.get(credential.id) is None:
                return
        raise Conflict("jobs are being made that send by this credential", field="credentialId")

    def check_content(self, credential: Credential, body: Mapping[str, Any]) -> None:
        """Raise `Invalid` unless the provider can send messages with this template's body."""
        self._kind(credential.kind).check_content(body)

    async def require(self, credential_id: str) -> Credential:
        credential = await self._store.credentials.get(credential_id)
        if credential is None:
            raise NotFound("there is no credential with this id", field="credentialId", value=credential_id)
        return credential

    async def reseal(self, *, most: int) -> Resealed:
        """Seal up to `most` secrets anew that are sealed under older keys and that a key opens. Raises `Invalid`
        without a key."""
        current, resealed, unreadable, after = self._keys.current, 0, 0, ""
        while found := await self._store.credentials.find_sealed_otherwise(current, after=after, limit=_PAGE):
            for credential in found:
                after = credential.id
                if resealed == most:
                    break
                done = await self._reseal(credential)
                resealed, unreadable = resealed + (done is True), unreadable + (done is None)
            if resealed == most:
                break
        remaining = await self._store.credentials.count_sealed_otherwise(current)
        return Resealed(resealed, remaining, unreadable)

    def now(self) -> datetime:
        """The time now, as precise as the store keeps it."""
        return from_ms(ms(self._clock.now()))

    async def _reseal(self, credential: Credential) -> bool | None:
        """Whether it was sealed anew; `None` if no key opens it."""
        try:
            secret = self._keys.open(credential.secret, credential.id)
        except Conflict as error:
            log.warning("a credential's secret cannot be opened", credential=credential.id, reason=error.reason)
            return None
        sealed = replace(credential, secret=self._keys.seal(secret, credential.id))
        return await self._store.credentials.change(credential, sealed) is not None

    def _kind(self, name: str) -> ProviderKind:
        kinds = self._load_kinds()
        if name not in kinds:
            raise Invalid(f"kind is one of {', '.join(kinds)}{suggest(name, kinds)}", field="kind", value=name)
        return kinds[name]

    def _open(self, credential: Credential, secret: Mapping[str, str]) -> Provider:
        provider = self._kind(credential.kind).open(credential.fields, secret, self._outgoing, credential.id)
        return ObservedProvider(provider, credential.kind)

    def _open_secret(self, credential: Credential) -> Mapping[str, str]:
        return self._keys.open(credential.secret, credential.id) if credential.secret else {}

    def _seal(self, credential: Credential, secret: Mapping[str, str]) -> dict[str, str]:
        check_secret(secret)
        if not secret:
            return {"secret": "", "fingerprint": ""}
        return {"secret": self._keys.seal(secret, credential.id), "fingerprint": self._keys.fingerprint(secret)}

    def _check(self, credential: Credential, secret: Mapping[str, str]) -> None:
        kind = self._kind(credential.kind)
        self._check_content(credential)
        try:
            kind.check(credential.fields, secret)
        except Invalid as error:
            raise _in_its_place(error) from None

    def _check_content(self, credential: Credential) -> None:
        kind = self._kind(credential.kind)
        check_credential(credential)
        try:
            kind.check_content(trial_content(credential, kind.channel))
        except Invalid as error:
            field = f"testContent.{error.field}" if error.field else "testContent"
            raise Invalid(error.reason, field=field, value=error.value) from None

    async def _check_room(self, credential: Credential) -> None:
        """Check before the test message is sent; the unique index decides between concurrent requests."""
        present = await self._store.credentials.find_named(credential.app_id, credential.name)
        if present is not None and present.id != credential.id:
            raise Conflict("the app has a credential with this name", field="name", value=credential.name)
        most = CREDENTIALS_OF_AN_APP
        if await self._store.credentials.count_of(credential.app_id, most=most) >= most:
            raise Conflict(f"an app has at most {most} credentials", field="appId", value=credential.app_id)

    async def _check_shared(self, credential: Credential) -> None:
        apps = await self._store.apps.with_ids(credential.shared_with)
        for index, app_id in enumerate(credential.shared_with):
            if app_id not in apps:
                raise Invalid("there is no app with this id", field=f"sharedWith[{index}]", value=app_id)

    async def _send_trial(self, credential: Credential, secret: Mapping[str, str]) -> None:
        content = trial_content(credential, self.channel_of(credential.kind))
        key = f"test-{credential.id}-{secrets.token_hex(4)}~1"
        provider = self._open(credential, secret)
        try:
            answer = await provider.send(content, credential.test_recipient, key, lambda: True)
        finally:
            await provider.close()
        _judge(answer, secret, credential.fields)


def _judge(answer: answers.Answer, secret: Mapping[str, str], fields: Mapping[str, Any]) -> None:
    where = next((f"fields.{name}" for name in _PLACES if name in fields), None)
    check = "check fields.host and fields.port, or try" if where == "fields.host" else f"check {where}, or try"
    check = check if where else "try"
    at_fault = getattr(answer, "field", "")
    own = f"fields.{at_fault}" if at_fault else None
    match answer:
        case answers.CallAccepted():
            return
        case answers.CallRefused():
            field = where if answer.reason is answers.Reason.OTHER else "testRecipient"
            raise Invalid(_tell("the provider refuses the test message", answer.detail, secret), field=own or field)
        case answers.LoginRefused():
            raise Invalid(_tell("the provider does not let us in", answer.detail, secret), field=own or "secret")
        case answers.NotNow() if own:
            raise Invalid(answer.detail, field=own)
        case answers.NotNow():
            told = _tell("the provider does not take the test message now", answer.detail, secret)
            raise Invalid(f"{told.rstrip('.')}; {check} again later", field=where)
        case answers.CallUnanswered():
            told = _tell("the provider gave no answer; the test message may have gone out", answer.detail, secret)
            raise Invalid(f"{told.rstrip('.')}; {check} again later", field=where)
        case _:
            assert_never(answer)


def _tell(what: str, detail: str, secret: Mapping[str, str]) -> str:
    """The sentence with the provider's words. Secrets are masked, because a provider may repeat any part of them."""
    for text in sorted(secret.values(), key=len, reverse=True):
        if len(text) >= _SHORTEST_HIDDEN:
            detail = detail.replace(text, _MASK)
    return f"{what}: {detail}" if detail else what


def _in_its_place(error: Invalid) -> Invalid:
    """The same error with its field named as in the request. Its value is left out, because it may be a secret."""
    field = error.field or ""
    if field != "kind" and field.partition(".")[0] != "secret":
        field = f"fields.{field}".removesuffix(".")
    return Invalid(error.reason, field=field)
