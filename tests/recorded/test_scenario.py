"""Pages, the store and what goes out are as they were recorded, after one scenario that has one of everything."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.ready_databases import ReadyDatabases
from tests.recorded.pages import record_pages
from tests.recorded.recorder import Recording, check
from tests.recorded.scenario import Lived, live
from tests.recorded.sent import record_sent
from tests.recorded.sentinels import record_leaks, record_sights
from tests.recorded.stored import record_store
from tests.recorded.world import World, open_world
from tests.stack import Endpoints

pytestmark = [pytest.mark.recorded, pytest.mark.asyncio(loop_scope="module")]


@dataclass
class Scene:
    world: World
    lived: Lived
    stored: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(
    stack: Endpoints, ready_databases: ReadyDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with ready_databases.lend() as url:
        async with open_world(stack, url, folder, zones=False) as world:
            lived = await live(world, folder)
            yield Scene(world, lived, record_store(world))


async def test_the_store(scene: Scene) -> None:
    check(scene.stored, "store")


async def test_what_goes_out(scene: Scene) -> None:
    check(await record_sent(scene.world, scene.lived), "sent/scenario")


async def test_pages(scene: Scene) -> None:
    recording = Recording()
    await record_pages(scene.world, scene.lived, recording)
    check(recording.texts(scene.world.names), "pages")


async def test_personal_words_are_seen_by_those_who_may(scene: Scene) -> None:
    told = await record_sights(scene.world, scene.lived) | record_leaks(scene.world)
    forbidden = ("stranger ", "viewer ", "log ")
    assert [line for text in told.values() for line in text.splitlines() if line.startswith(forbidden)] == []
    check(told, "sentinels")
