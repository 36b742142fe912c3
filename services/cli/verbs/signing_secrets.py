"""`carillon signing-secrets`."""

from services.cli import options
from services.cli.session import Session
from services.cli.verb import noun

signing_secrets = noun("signing-secrets")


@signing_secrets.verb(
    "create",
    changes=True,
    examples=(
        "signing-secrets create",
        "signing-secrets create --namespace user:ana@example.com",
    ),
)
@options.namespace
def create_signing_secret(session: Session, namespace: str) -> None:
    """Create a signing secret for a namespace and print it once. The old one signs beside it for a day."""
    issued = session.api.post("signing-secrets", once=True, namespace=namespace)
    if not session.out.json:
        until = session.out.when(issued["alone_from"])
        session.out.tell(f"Secret {issued['version']} of {issued['namespace']}; those before it sign until {until}.")
    session.out.confirm(issued, issued["secret"], id="secret")
