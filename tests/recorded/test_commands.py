"""Every command prints, asks and ends as it was recorded."""

from pathlib import Path

import pytest

from tests.cli.test_every_route import offered
from tests.ready_databases import ReadyDatabases
from tests.recorded.commands import WORDS, helps, record_commands
from tests.recorded.recorder import Recording, check
from tests.recorded.world import open_world
from tests.stack import Endpoints

pytestmark = pytest.mark.recorded

__all__ = ["offered"]


@pytest.mark.usefixtures("offered")
async def test_commands(
    stack: Endpoints, ready_databases: ReadyDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording()
    with ready_databases.lend() as url:
        async with open_world(stack, url, tmp_path) as world:
            for words in WORDS:
                record_commands(world.document, recording, monkeypatch, words)
    texts = recording.texts({str(tmp_path): "<folder>"})
    check(texts | {file: f"{text}\n" for file, text in helps()}, "cli")
