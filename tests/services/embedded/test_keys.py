"""The key that an embedded Carillon makes for itself."""

import stat
from pathlib import Path

import pytest

from services.embedded.instance import KEY_FILE, SIGNING_FILE, own_key, own_signing_secret
from shared.core.errors import Conflict
from shared.drivers.http.signing import check_secret
from shared.drivers.secrets import KeyRing


def test_a_key_is_made_once_and_is_for_this_user_alone(tmp_path: Path) -> None:
    key = own_key(tmp_path)
    assert own_key(tmp_path) == key
    KeyRing([key])
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_what_a_dead_process_left_half_written_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "secret.new").write_text("half")
    KeyRing([own_key(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_a_signing_secret_is_made_once_too(tmp_path: Path) -> None:
    secret = own_signing_secret(tmp_path)
    check_secret(secret, "secret")
    assert own_signing_secret(tmp_path) == secret
    assert stat.S_IMODE((tmp_path / SIGNING_FILE).stat().st_mode) == 0o600
    (tmp_path / SIGNING_FILE).write_text("whsec_short")
    with pytest.raises(Conflict, match="holds no signing secret"):
        own_signing_secret(tmp_path)


@pytest.mark.parametrize("content", ["", "no key", "é" * 44])
def test_a_broken_key_is_never_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / KEY_FILE).write_text(content)
    with pytest.raises(Conflict, match="holds no key"):
        own_key(tmp_path)
    assert (tmp_path / KEY_FILE).read_text() == content
