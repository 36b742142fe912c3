"""The secrets of the settings, so that none of them is ever shown, whoever repeats it in an error."""

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from services.commands.doctor.findings import Finding
from shared.runtime.masking import without_secrets
from shared.runtime.settings import Settings

MASK = "***"
# Shorter ones are words: masking them would make sentences unreadable, and hide nothing.
_LEAST = 6
_KNOWN_BY_ALL = {"carillon", "postgres", "minioadmin"}


class Secrets:
    """Masks what is secret in these settings."""

    def __init__(self, settings: Settings) -> None:
        self._texts = sorted({text for text in _texts_of(settings) if _is_worth_hiding(text)}, key=len, reverse=True)

    def mask(self, finding: Finding) -> Finding:
        """The finding without secrets."""
        return Finding(
            finding.level, finding.of, finding.check, self._hide(finding.sentence), self._hide(finding.remedy)
        )

    def _hide(self, text: str) -> str:
        for secret in self._texts:
            text = text.replace(secret, MASK)
        return without_secrets(text)


def _is_worth_hiding(text: str) -> bool:
    return len(text) >= _LEAST and text not in _KNOWN_BY_ALL


def _texts_of(settings: Settings) -> Iterator[str]:
    for section in (settings.store, settings.broker, settings.stream, settings.audience, settings.blobs, settings.mail):
        for name in section.__struct_fields__:
            value = getattr(section, name)
            if name.endswith("url") and isinstance(value, str) and (password := urlsplit(value).password):
                yield from (password, unquote(password))
    yield from (
        settings.blobs.secret_key,
        settings.api.proxy_secret,
        settings.callbacks.signing_secret,
        settings.bus.root_key,
    )
    yield from settings.providers.secret_keys.replace(",", " ").split()
