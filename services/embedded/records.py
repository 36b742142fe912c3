"""`carillon records`: the local log of a `carillon up`, so that its user can try a pusher without Kafka."""

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from shared.domain.errors import Invalid
from shared.domain.push.feedback import Skipped, read
from shared.stream.local import LocalStream

_LOOK_SECONDS = 0.25  # `carillon up` writes in another process, so its appends wake no reader here


async def print_records(url: str, topic: str, *, follow: bool) -> int:
    """Print the values of a topic, one a line, oldest first. Raises `Invalid` if there is no such topic."""
    stream, out = LocalStream(Path(unquote(urlsplit(url).path))), sys.stdout.buffer
    names = await stream.transact(
        lambda log: [name for (name,) in log.execute("SELECT name FROM topics ORDER BY name")]
    )
    if topic not in names and not follow:
        raise Invalid(f"no topic {topic!r}; a `carillon up` has {', '.join(names)}", field="TOPIC")
    async with stream.reader(re.escape(topic), group="records") as reader:
        while (chunks := await reader.read(0)) or follow:
            out.writelines((value or b"") + b"\n" for chunk in chunks for value in chunk.values)
            out.flush()
            if not chunks:
                await asyncio.sleep(_LOOK_SECONDS)
    return 0


async def append_feedback(url: str, topic: str) -> int:
    """Append each line of standard input to a topic; returns 1 if feedback would not count one of them."""
    stream, code = LocalStream(Path(unquote(urlsplit(url).path))), 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        value = line.rstrip(b"\r\n")
        if isinstance(found := read(value), Skipped):
            click.echo(f"line {number} is not counted: {found.reason}", err=True)
            code = 1
        await stream.publish(topic, [value])
    return code
