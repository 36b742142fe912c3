"""The questions to S3, or about the folder in its place."""

from urllib.parse import unquote, urlsplit

from services.commands.doctor.examination import ADDRESS, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinions, fault, well
from services.commands.doctor.shell import command
from shared.blobs import Blobs
from shared.domain.errors import NotFound
from shared.runtime.settings import BlobSettings

_PORTS = {"http": 80, "https": 443}


class S3(Examination):
    """The bucket of our own files."""

    of = "S3"
    setting = "blobs.endpoint_url"

    def __init__(self, settings: BlobSettings, blobs: Blobs) -> None:
        self._endpoint = settings.endpoint_url
        self._blobs = blobs
        parts = urlsplit(settings.endpoint_url)
        if parts.hostname:
            self.addresses = [Address(parts.hostname, parts.port or _PORTS[parts.scheme])]
        self.uses_tls = parts.scheme != "http"
        self.where = f"{settings.url} at {self.addresses[0]}" if self.addresses else settings.url

    async def check_bucket(self) -> Opinions:
        """The bucket is there, and can be read and written."""
        try:
            await self._blobs.verify()
        except NotFound as error:
            endpoint = ("--endpoint-url", self._endpoint) if self._endpoint else ()
            return fault(str(error), command("aws", *endpoint, "s3", "mb", f"s3://{self._blobs.bucket}"))
        return well(f"the bucket {self._blobs.bucket} can be read and written")

    questions = (
        ADDRESS,
        TLS,
        Question(
            "bucket",
            "S3 accepts our keys, and the bucket of `blobs.url` can be read and written. The doctor begins an upload "
            "in parts and aborts it, so that there is no object at any time.",
            check_bucket,
        ),
    )


class FilesFolder(Examination):
    """The folder of our own files."""

    of = "Folder of files"

    def __init__(self, url: str, blobs: Blobs) -> None:
        self.where = unquote(urlsplit(url).path)
        self._blobs = blobs

    async def check_folder(self) -> Opinions:
        """The folder can be read and written."""
        await self._blobs.verify()
        return well("it can be read and written")

    questions = (
        Question(
            "folder",
            "The folder of `blobs.url` can be read and written, or made. The doctor writes a file without a name, "
            "which is gone when it is closed.",
            check_folder,
        ),
    )
