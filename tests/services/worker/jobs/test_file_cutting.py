"""Where batches come from: pages of a file, read anew, passed on, or taken up in the middle."""

import uuid
from collections.abc import AsyncIterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

from services.worker.jobs import cutting
from services.worker.jobs.cutting import FileCuts, PlannedBatch
from shared.audience.rules.audiences import ByteRange
from shared.audience.rules.columns import Chosen, Header, NamedColumns, choose
from shared.audience.rules.csv_cuts import rows_in
from shared.core.errors import Invalid
from shared.drivers.blobs import CHUNK_BYTES
from shared.drivers.blobs.files import FolderBlobs
from shared.jobs.store_files import PAGE
from shared.store import Store
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

RECORDS = 50
CONTENT = b"id\n" + b"".join(b"%08d\n" % number for number in range(2 * CHUNK_BYTES // 9))


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs.open(tmp_path.as_uri())


async def planned(store: Store, blobs: FolderBlobs, content: bytes = CONTENT) -> str:
    async def parts() -> AsyncIterator[bytes]:
        yield content

    path, plan_id = f"{blobs.bucket}/users.csv", str(uuid.uuid4())
    await blobs.write(path, parts())
    await store.files.begin(plan_id, await blobs.stat(path), cut_records=RECORDS)
    return plan_id


async def all_pages(cuts: FileCuts, plan_id: str, first: int = 0) -> list[list[PlannedBatch]]:
    return [page async for page in cuts.pages(plan_id, first) if page]


def ranges(pages: list[list[PlannedBatch]]) -> list[ByteRange]:
    return [part.range for part in chain.from_iterable(pages) if isinstance(part.range, ByteRange)]


@pytest.mark.parametrize("large", [False, True])
async def test_a_file_is_cut_once_and_passed_on_from_anywhere(
    store: Store, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(cutting, "_READ_FIRST_BYTES", 0 if large else 2**40)
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs)
    pages = await all_pages(cuts, plan_id)
    assert all(len(page) == PAGE for page in pages[:-1])
    found = ranges(pages)
    assert all(early.end == late.start for early, late in pairwise(found))
    assert (found[0].start, found[-1].end) == (3, len(CONTENT))
    plan = await store.files.plan(plan_id)
    assert plan is not None
    assert (plan.pages, plan.users, plan.repeated) == (len(pages), CONTENT.count(b"\n") - 1, 0)
    for first in (0, 1, PAGE - 1, PAGE, len(found) - 1, len(found)):
        assert ranges(await all_pages(cuts, plan_id, first)) == found[first:]


@pytest.mark.parametrize("kept", and_rarely(1, rarely=(0, 3)))
async def test_a_plan_is_taken_up_where_its_pages_end(store: Store, blobs: FolderBlobs, kept: int) -> None:
    """Whoever planned died in between: the pages that are there stay, and the others are what they would have been."""
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs)
    whole = ranges(await all_pages(cuts, plan_id))
    again = await planned(store, blobs)
    for number in range(kept):
        await store.files.add_page(again, number, whole[number * PAGE : (number + 1) * PAGE])
    first = kept * PAGE + (7 if kept else 0)
    assert ranges(await all_pages(cuts, again, first)) == whole[first:]


async def test_a_large_file_is_passed_on_while_it_is_read(
    store: Store, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many cuts a piece of it holds: none is kept back for the next one."""
    monkeypatch.setattr(cutting, "_READ_FIRST_BYTES", 0)
    plan_id = await planned(store, blobs)
    sizes = [len(page) async for page in FileCuts(store, blobs).pages(plan_id, 0)]
    before_the_second_piece = sizes[: sizes.index(0)]
    assert sum(before_the_second_piece) > CHUNK_BYTES / 9 / RECORDS - 2 * PAGE


async def test_a_broken_file_gives_nothing_and_is_read_once(store: Store, blobs: FolderBlobs) -> None:
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, CONTENT + b"\0\n")
    with pytest.raises(Invalid, match="NUL"):
        await all_pages(cuts, plan_id)
    assert await store.files.page(plan_id, 0) is None
    await store.files.fail(plan_id, "broken", path="b/users.csv")
    await store.files.fail(plan_id, "broken again", path="b/users.csv")
    with pytest.raises(Invalid, match=r"broken$"):
        await all_pages(cuts, plan_id)


def by_name(header: Header) -> Chosen:
    return choose(header, "recipient", ["name"])


PEOPLE = b"Name, RECIPIENT\nAnn,a1\nBob,b2\nAnn again,A1\nCid,c3\n"


async def test_a_file_with_named_columns_keeps_its_header_with_the_plan(store: Store, blobs: FolderBlobs) -> None:
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, PEOPLE)
    named = NamedColumns(by_name, normalize=bytes.lower)
    [[part]] = [page async for page in cuts.pages(plan_id, 0, named=named) if page]
    plan = await store.files.plan(plan_id)
    assert plan is not None
    assert plan.header == Header(("name", "recipient"), PEOPLE.index(b"Ann"))
    assert (plan.users, plan.repeated) == (3, 1)
    assert isinstance(part.range, ByteRange)
    content = PEOPLE[part.range.start : part.range.end]
    rows = rows_in(part.range, content, plan.header, by_name(plan.header))
    assert (rows.numbers, rows.ids, rows.others) == ([0, 1, 3], [b"a1", b"b2", b"c3"], ([b"Ann", b"Bob", b"Cid"],))
    assert [page async for page in cuts.pages(plan_id, 0, named=named) if page] == [[part]], "and passes it on"


async def test_who_stands_in_a_file_twice_is_written_to_twice_where_that_is_wanted(
    store: Store, blobs: FolderBlobs
) -> None:
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, PEOPLE)
    named = NamedColumns(by_name, normalize=bytes.lower, once=False)
    [[part]] = [page async for page in cuts.pages(plan_id, 0, named=named) if page]
    assert (part.size, part.range) == (4, ByteRange(PEOPLE.index(b"Ann"), len(PEOPLE), 4))


async def test_the_header_is_there_before_the_first_page(
    store: Store, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "_READ_FIRST_BYTES", 0)
    content = b"recipient" + CONTENT[2:]
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, content)
    async for page in cuts.pages(plan_id, 0, named=NamedColumns(by_name)):
        if page:
            break
    plan = await store.files.plan(plan_id)
    assert plan is not None
    assert (plan.header, plan.pages) == (Header(("recipient",), 10), None)


async def test_a_file_without_its_recipients_has_no_page(store: Store, blobs: FolderBlobs) -> None:
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, b"name\nAnn\n")
    with pytest.raises(Invalid, match=r'no column "recipient".*in the header'):
        [page async for page in cuts.pages(plan_id, 0, named=NamedColumns(by_name))]
    assert await store.files.page(plan_id, 0) is None


@pytest.mark.parametrize(("most", "fits"), [(2, False), (3, True), (0, True)])
async def test_a_file_with_too_many_recipients_gives_nothing(
    store: Store, blobs: FolderBlobs, most: int, fits: bool
) -> None:
    """Ann stands in it twice, and is one recipient."""
    cuts, plan_id = FileCuts(store, blobs), await planned(store, blobs, PEOPLE)
    pages = cuts.pages(plan_id, 0, named=NamedColumns(by_name, normalize=bytes.lower, most=most))
    if fits:
        assert [part.size async for page in pages for part in page] == [3]
        return
    with pytest.raises(Invalid, match="more than the 2 recipients") as refused:
        _ = [page async for page in pages]
    assert refused.value.field == "maxRecipients"
    assert await store.files.page(plan_id, 0) is None


async def test_a_large_file_is_given_up_as_soon_as_there_are_too_many(
    store: Store, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "_READ_FIRST_BYTES", 0)
    plan_id = await planned(store, blobs, CONTENT.replace(b"id", b"recipient", 1))
    pages: list[list[PlannedBatch]] = []
    most = CHUNK_BYTES // 9 + 1_000
    named = NamedColumns(lambda header: choose(header, "recipient", ()), most=most)

    async def read_on() -> None:
        async for page in FileCuts(store, blobs).pages(plan_id, 0, named=named):
            pages.append(page)  # noqa: PERF401 - those before the error count

    with pytest.raises(Invalid, match="more than the"):
        await read_on()
    assert 0 < sum(part.size for page in pages for part in page) <= most
