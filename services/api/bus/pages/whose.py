"""Which namespace a page is about, and what its links hand on of it."""

from services.api.http.pages.filters import query_of
from services.api.http.pages.routes import Values
from services.api.http.pages.visits import Visit, address

NAMESPACE = "namespace"
SUBSCRIPTION_PAGE = "/bus/subscriptions/{}"


def read_namespace(visit: Visit) -> str:
    """The namespace that the address names, `""` for the reader's own."""
    return visit.query(NAMESPACE)


def hand_on(visit: Visit, **query: str) -> str:
    """The query that an address below `/bus` needs, so that it is about the same namespace; `""` for none."""
    return query_of(**{NAMESPACE: read_namespace(visit)} | query)


def below(visit: Visit, path: str, *parts: str, **query: str) -> str:
    """An address below `/ui` that is about the same namespace."""
    return address(path, *parts) + hand_on(visit, **query)


def tell_whose(visit: Visit) -> Values:
    """What every template of the bus needs: whose things it shows, and whether the reader may move and own them."""
    namespace = read_namespace(visit) or visit.caller.namespace
    return {
        "namespace": namespace,
        "is_own": namespace == visit.caller.namespace,
        "operates": visit.may("operator", namespace=namespace),
        "owns": visit.may("admin", namespace=namespace),
        "where": hand_on(visit),
        "below": lambda path, *parts, **query: below(visit, path, *parts, **query),
    }
