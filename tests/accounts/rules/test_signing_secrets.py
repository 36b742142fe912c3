"""Which secrets sign a namespace's callbacks, and that nobody else's do."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.accounts.rules.secrets import (
    OVERLAP,
    VERSIONS,
    NamespaceSecrets,
    SigningVersion,
    derive_secret,
    rotate,
    signing_secrets,
)
from shared.core.errors import Conflict

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)


def after(*moments: datetime, namespace: str = "token:a") -> NamespaceSecrets:
    """The secrets of a namespace that asked at these moments."""
    secrets = None
    for number, moment in enumerate(moments):
        secrets = rotate(secrets, namespace, f"salt {number}", moment)
    assert secrets is not None
    return secrets


def test_a_secret_is_the_same_in_every_release() -> None:
    # It is nowhere stored: another one would make every receiver refuse what it is sent.
    assert (
        derive_secret(KEY, "token:a", SigningVersion(3, "00ff", NOW))
        == "whsec_FHfYJ8eBrrfLjREVxT14yXwd/7rMoEkVJ3x+HbNH4Bg="
    )


def test_receivers_have_a_day_to_change_over_and_five_secrets_sign_at_most() -> None:
    assert (timedelta(days=1), 5) == (OVERLAP, VERSIONS)


def test_the_first_secret_has_the_number_one() -> None:
    assert [version.number for version in after(NOW, NOW, NOW).versions] == [1, 2, 3]


def test_whoever_never_asked_is_signed_by_the_deployments() -> None:
    assert signing_secrets(None, KEY, NOW) == (KEY,)


def test_the_deployments_signs_beside_the_first_one_for_a_day() -> None:
    secrets = after(NOW)
    own = derive_secret(KEY, "token:a", secrets.newest)
    assert signing_secrets(secrets, KEY, NOW + OVERLAP - MOMENT) == (own, KEY)
    assert signing_secrets(secrets, KEY, NOW + OVERLAP) == (own,)


def test_an_old_one_signs_beside_the_new_one_for_a_day() -> None:
    later = NOW + 3 * OVERLAP
    secrets = after(NOW, later)
    old, new = (derive_secret(KEY, "token:a", version) for version in secrets.versions)
    assert old != new
    assert signing_secrets(secrets, KEY, later + OVERLAP - MOMENT) == (new, old)
    assert signing_secrets(secrets, KEY, later + OVERLAP) == (new,)


def test_who_asks_twice_on_the_first_day_is_signed_by_all_three() -> None:
    later = NOW + OVERLAP / 2
    secrets = after(NOW, later)
    first, second = (derive_secret(KEY, "token:a", version) for version in secrets.versions)
    assert signing_secrets(secrets, KEY, later) == (second, first, KEY)


def test_one_whose_answer_was_lost_ends_no_other_early() -> None:
    secrets = after(NOW, NOW + 3 * OVERLAP, NOW + 3 * OVERLAP + MOMENT)
    assert len(signing_secrets(secrets, KEY, NOW + 4 * OVERLAP - MOMENT)) == 3
    assert len(signing_secrets(secrets, KEY, NOW + 4 * OVERLAP + MOMENT)) == 1


def test_what_has_ended_is_forgotten_and_does_not_bring_the_deployments_back() -> None:
    later = NOW + 3 * OVERLAP
    secrets = rotate(after(NOW, NOW + OVERLAP), "token:a", "salt", later)
    assert [version.number for version in secrets.versions] == [2, 3]
    assert KEY not in signing_secrets(secrets, KEY, later)


def test_so_many_sign_at_once_and_no_more() -> None:
    secrets = after(*(NOW + number * MOMENT for number in range(VERSIONS)))
    with pytest.raises(Conflict):
        rotate(secrets, "token:a", "salt", NOW + OVERLAP)
    assert rotate(secrets, "token:a", "salt", NOW + OVERLAP + VERSIONS * MOMENT).newest.number == VERSIONS + 1


def test_no_two_namespaces_versions_keys_or_salts_have_one_secret() -> None:
    version = after(NOW).newest
    made = {
        derive_secret(KEY, "token:a", version),
        derive_secret(KEY, "token:b", version),
        derive_secret(KEY + "x", "token:a", version),
        derive_secret(KEY, "token:a", after(NOW, NOW).newest),
        derive_secret(KEY, "token:a", rotate(None, "token:a", "another", NOW).newest),
    }
    assert len(made) == 5
