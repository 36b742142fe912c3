"""`client.uploads`: bring files with audiences to where jobs find them."""

import msgspec
from msgspec import Struct, field

from carillon.calls import M, Resource, call
from carillon.files import Source, file_of
from carillon.transport import Answer


class _Place(Struct, frozen=True):
    """Where one file can be put, and what a job calls it then."""

    url: str
    csv_path: str = field(name="csvPath")


_place = msgspec.json.Decoder(_Place)


class Uploads(Resource[M]):
    """Files for push jobs."""

    @call
    async def put(self, source: Source) -> str:
        """Upload a CSV file, given as a path or as a stream of bytes: what it returns is the `csv_path` of a `PushJob`.

        A file is read in small pieces and sent with its length, again from its start on each attempt. A stream can be
        read only once, so it is written to a temporary file first (`tempfile` says where).

        Each attempt has a place of its own in the bucket: one whose answer was lost leaves at most a file there that no
        job names.

        AWS takes at most 5 GB in one PUT, which an upload is; it refuses what is larger (`EntityTooLarge`).

        Raises:
            CarillonError: no place was given, or what stands there refuses the file; what S3 says is the `reason`.
                `Unavailable` shows the URL and its last cause without the signature.
            Invalid: the file changed meanwhile; `field` is `source`.
            OSError: it cannot be read, be it in the middle (there is no further attempt then), or a stream not be
                written down.
            ValueError: it is a folder, a pipe or the like.
        """
        async with file_of(source, self._transport.runtime) as file:
            return (await self._transport.upload("/uploadurl", _url, file)).read(_place).csv_path


def _url(told: Answer) -> str:
    return told.read(_place).url
