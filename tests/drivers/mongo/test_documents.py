"""A driver's errors and what we make of them. The server that tests run on never steps down: its answers are written
out here as a real one sends them."""

from typing import Any, cast

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, InvalidOperation, OperationFailure, WriteConcernError, WriteError

from shared.core.errors import Unavailable, Unserved
from shared.drivers.mongo.documents import Aggregate, Document, insert_new, translate_errors

STEPPED_DOWN = {"code": 11602, "errmsg": "operation was interrupted"}
NOT_PRIMARY = {"index": 1, "code": 10107, "errmsg": "not primary"}
DUPLICATE = {"index": 2, "code": 11000, "errmsg": "duplicate key"}
TOO_LARGE = {"index": 0, "code": 10334, "errmsg": "object too large"}


class Answering:
    """A collection of a server that answers each insert so."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def insert_many(self, documents: object, *, ordered: bool) -> None:
        raise self._error


def bulk(write_errors: list[Any], concern_errors: list[Any]) -> BulkWriteError:
    return BulkWriteError({"writeErrors": write_errors, "writeConcernErrors": concern_errors, "nModified": 3})


async def insert(error: Exception) -> set[int]:
    collection = cast("AsyncCollection[Document]", Answering(error))
    return await insert_new(collection, [{"_id": n} for n in range(3)])


@pytest.mark.parametrize(
    "error",
    [
        bulk([], [STEPPED_DOWN]),
        bulk([NOT_PRIMARY], []),
        bulk([DUPLICATE], [STEPPED_DOWN]),
        bulk([TOO_LARGE, NOT_PRIMARY], []),
        WriteConcernError("stepping down", 11602),
        WriteError("not primary", 10107),
        OperationFailure("interrupted at shutdown", 11600),
    ],
)
async def test_a_server_that_steps_down_is_unavailable_however_it_says_so(error: Exception) -> None:
    with pytest.raises(Unavailable), translate_errors():
        raise error
    with pytest.raises(Unavailable):
        await insert(error)


@pytest.mark.parametrize("code", [24, 43, 112, 175, 237, 239, 246, 251, 290, 365, 388, 402, 449, 462])
async def test_whatever_may_go_well_the_next_time_is_unavailable(code: int) -> None:
    with pytest.raises(Unavailable, match=str(code)), translate_errors():
        raise OperationFailure("not now", code, {"errmsg": "not now"})


async def test_a_server_that_says_that_it_is_overloaded_is_unavailable() -> None:
    with pytest.raises(Unavailable), translate_errors():
        raise OperationFailure("later", 99_999, {"errorLabels": ["SystemOverloadedError"]})


@pytest.mark.parametrize("code", [13, 18])
async def test_a_server_that_denies_us_is_unavailable_and_what_was_asked_is_not_told(code: int) -> None:
    said = "not authorized on carillon to execute command { insert: 'jobs', documents: [ { secret: 1 } ] }"
    with pytest.raises(Unavailable, match="MongoDB does not") as told, translate_errors():
        raise OperationFailure(said, code, {"errmsg": said})
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "error",
    [
        bulk([TOO_LARGE], []),
        bulk([TOO_LARGE, DUPLICATE], []),
        WriteError("object too large", 10334),
        InvalidOperation("object too large"),
    ],
)
async def test_other_failures_are_ours_and_tell_nothing_that_is_stored(error: Exception) -> None:
    with pytest.raises(Unserved) as told, translate_errors():
        raise error
    assert "object too large" not in str(told.value)
    with pytest.raises(Unserved):
        await insert(error)


async def test_keys_that_are_taken_are_told_by_their_places() -> None:
    assert await insert(bulk([DUPLICATE, {**DUPLICATE, "index": 0}], [])) == {0, 2}


class Things(Aggregate):
    async def read(self, error: Exception) -> None:
        raise error

    async def read_in(self, error: Exception, *, session: AsyncClientSession | None) -> None:
        raise error


async def test_only_a_method_in_a_callers_transaction_shows_the_drivers_errors_which_say_whether_to_repeat_it() -> None:
    conflict = OperationFailure("WriteConflict", 112)
    with pytest.raises(Unavailable):
        await Things().read(conflict)
    with pytest.raises(OperationFailure):
        await Things().read_in(conflict, session=None)
