"""The parts of the settings' sections: their base, the kinds of values, and the sentence of a field."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.runtime.masking import without_secrets

RARELY = "rarely"

# No quotes and no blanks: `without_secrets` finds every password that is there. They can be percent-encoded.
Url = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]*://[^\s'\"]*\Z")]
HttpUrl = Annotated[str, Meta(pattern=r"^(https?://[^/\s'\"][^\s'\"]*)?\Z")]
PublicUrl = Annotated[
    str, Meta(pattern=r"^(https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?)?\Z")
]
Origin = Annotated[str, Meta(pattern=r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?\Z")]
HostName = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)\Z")]
Folder = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}){0,5}\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,200}\Z")]
Seconds = Annotated[float, Meta(ge=0.05, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Mailbox = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}\Z")]
Port = Annotated[int, Meta(ge=0, le=65_535)]


def says(sentence: str) -> Meta:
    """The sentence that the manual prints above a field."""
    return Meta(description=sentence)


def rarely(sentence: str) -> Meta:
    """The same for a field that few deployments change: `carillon config` shows it when it is asked for all."""
    return Meta(description=sentence, extra={RARELY: True})


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the settings. Its repr masks passwords, so that no log or traceback can show one."""

    def __repr__(self) -> str:
        fields = (without_secrets(f"{name}={getattr(self, name)!r}") for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"
