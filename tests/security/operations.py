"""Every operation of the API, from its own OpenAPI document, and what the suite must know to use one.

Nothing here names a route. What a path, a required query parameter or a body of a new route needs and the suite does
not know is an `Unknown`, which says what to add and where.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from tests.security import bodies

_METHODS = ("get", "post", "put", "delete", "patch")
CSV = "text/csv"
_PARAMETER = re.compile(r"\{(\w+)\}")


class Unknown(AssertionError):
    """The document has something new that the suite does not know how to fill."""


class Role(StrEnum):
    """Whom an operation's `security` lets in. Who needs a role over a namespace has it over their own. Those on the bus
    take basic auth, of a client, of its root, or of either (`least`)."""

    EVERYBODY = "everybody"
    KNOWN = "known"
    OF_NAMESPACE = "namespace"
    OF_APP = "app"
    OF_EVERYTHING = "everything"
    ON_BUS = "bus"
    ADMIN = "admin"


OF_THE_WHOLE = {Role.OF_EVERYTHING, Role.ADMIN}
"""What a tenant, who has apps and a namespace of its own, may not use."""


@dataclass(frozen=True)
class Operation:
    """One method of one path. `least` is the role over an app or a namespace that it takes."""

    method: str
    path: str
    role: Role
    least: str
    statuses: frozenset[str]
    query: tuple[str, ...]
    body: str | None
    act: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def takes_root(self) -> bool:
        """Whether the bus's root alone may use it."""
        return self.role is Role.ON_BUS and self.least == "root"

    @property
    def takes_json(self) -> bool:
        return self.body is not None and self.body != CSV

    @property
    def makes(self) -> bool:
        """Whether it may make something under a name that is new to its caller."""
        return "201" in self.statuses

    def filled(self, ids: Mapping[str, str], **query: str) -> str:
        """The path with these ids, and with its required query parameters. Raises `Unknown`."""
        path = _PARAMETER.sub(lambda found: quote(self._id(found[1], ids), safe=""), self.path)
        asked = {name: self._asked(name) for name in self.query} | query
        return f"{path}?{urlencode(asked)}" if asked else path

    def valid(self, ids: Mapping[str, str]) -> object:
        """A body that it takes, or `None` where it takes none. Raises `Unknown`."""
        if self.body is None:
            return None
        if self.body not in bodies.VALID:
            raise Unknown(
                f"{self}: the suite knows no valid body of {self.body!r}; add one to VALID in tests/security/bodies.py"
            )
        return bodies.VALID[self.body](ids)

    def _id(self, name: str, ids: Mapping[str, str]) -> str:
        if name not in ids:
            raise Unknown(
                f"{self}: the suite does not know what {{{name}}} may be; give each tenant one in "
                "tests/security/tenants.py, as `ids`"
            )
        return ids[name]

    def _asked(self, name: str) -> str:
        if name not in bodies.QUERY:
            raise Unknown(
                f"{self}: the suite does not know what the required query parameter {name!r} may be; add it to QUERY "
                "in tests/security/bodies.py"
            )
        return bodies.QUERY[name]


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """All that the document has, those that only look first and those that delete last."""
    order = ("GET", "POST", "PATCH", "PUT", "DELETE")
    return sorted(_operations(document), key=lambda each: (order.index(each.method), -each.path.count("/")))


def _operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method in set(methods) & set(_METHODS):
            described = methods[method]
            parameters = described["parameters"]
            role, _, least = _role(described["security"]).partition("/")
            yield Operation(
                method=method.upper(),
                path=path,
                role=Role(role),
                least=least,
                statuses=frozenset(described["responses"]),
                query=tuple(
                    each["name"]
                    for each in parameters
                    if each["in"] == "query" and (each["required"] or each["name"] in bodies.ASKED_ALSO)
                ),
                body=_body(described.get("requestBody")),
                act=described.get("x-act", ""),
            )


def _role(security: list[dict[str, list[str]]]) -> str:
    """The role is the same in each way of proving who one is."""
    if not security:
        return Role.EVERYBODY
    [roles] = {tuple(roles) for way in security for roles in way.values()}
    return roles[0] if roles else Role.KNOWN


def _body(described: Mapping[str, Any] | None) -> str | None:
    """The name of what a body is: that of its schema, with `[]` behind an array's. A part of a file is called by its
    media type; other files are none."""
    if described is None:
        return None
    if "application/json" not in described["content"]:
        return CSV if CSV in described["content"] else None
    schema = described["content"]["application/json"]["schema"]
    return _name(schema["items"]) + "[]" if schema.get("type") == "array" else _name(schema)


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
