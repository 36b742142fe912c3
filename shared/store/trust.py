"""TLS of a MongoDB client: the settings apply if its URL asks for TLS and names no files of its own."""

from typing import Any

from pymongo import AsyncMongoClient

from shared.domain.errors import Invalid
from shared.runtime.server_settings import TlsSettings
from shared.runtime.tls import client_context

_OWN_FILES = ("tlscafile", "tlscertificatekeyfile", "tlscrlfile", "ssl_ca_certs", "ssl_certfile")
_LOOSE = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")


def trust_files(client: AsyncMongoClient[Any], url: str, tls: TlsSettings) -> None:
    """Give the client a context that reads its files again when they change. The driver accepts none, so this sets a
    private attribute. Raises `Invalid`."""
    if url.startswith("mongodb+srv://") and (tls.ca_file or tls.certificate_file):
        # The driver makes the options of such a client anew after it knows the hosts.
        rule = "name the files of TLS in the URL (tlsCAFile, tlsCertificateKeyFile) where it is mongodb+srv://"
        raise Invalid(rule, field="store.url")
    options = client.options.pool_options
    in_url = url.lower()
    if options._ssl_context is None or any(f"{name}=" in in_url for name in (*_OWN_FILES, *_LOOSE)):  # noqa: SLF001
        return
    options._PoolOptions__ssl_context = client_context(tls)  # type: ignore[attr-defined]  # noqa: SLF001
