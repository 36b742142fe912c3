"""Domains of mail addresses: one form for comparisons, and one for servers.

Both follow UTS #46 without its transitional mappings, as browsers do: `BÜCHER.de`, `xn--bcher-kva.de` and full-width
letters are one domain, and `straße.de` is not `strasse.de`.
"""

import re

import idna

# Mail hosts inside a network may have underscores in their names.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_PLAIN = re.compile(rf"(?!.*\bxn--)(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.IGNORECASE | re.ASCII)


def normal_domain(domain: str) -> str | None:
    """The domain in readable form and lower case; `None` if it is invalid. Equal domains have one such form."""
    encoded = domain_in_ascii(domain)
    if encoded is None or _PLAIN.fullmatch(encoded):
        return encoded and encoded.lower()
    return idna.decode(encoded)


def domain_in_ascii(domain: str) -> str | None:
    """The domain in DNS's form (`xn--…`); `None` if it is invalid. A domain in plain ASCII stays unchanged."""
    if _PLAIN.fullmatch(domain):
        return domain
    try:
        encoded = idna.encode(domain, uts46=True, transitional=False, std3_rules=True).decode()
    except idna.IDNAError:
        return None
    return None if encoded.endswith(".") else encoded


def address_in_ascii(address: str) -> str | None:
    """The address with its domain in DNS's form; `None` if its name or its domain has no form in ASCII."""
    name, _, domain = address.rpartition("@")
    encoded = domain_in_ascii(domain) if name.isascii() else None
    return None if encoded is None else f"{name}@{encoded}"
