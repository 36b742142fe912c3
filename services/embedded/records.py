"""`carillon records`: the local log of a `carillon up`, so that its user can try a pusher without Kafka."""

import asyncio
import re
import sys

import click

from shared.domain.errors import Invalid
from shared.domain.push.feedback import Skipped, read
from shared.stream import Stream

_READ_SECONDS = 0.25  # `carillon up` writes in another process, so its appends wake no reader here


async def print_records(stream: Stream, topic: str, *, follow: bool) -> int:
    """Print the values of a topic, one a line, oldest first. Raises `Invalid` if it has none."""
    out = sys.stdout.buffer
    if not follow and not any(end for _, end in (await stream.spans(topic)).values()):
        raise Invalid("it has no records; pushes of the app demo to iOS write to push-demo_apns-massive", field=topic)
    async with stream.reader(re.escape(topic), group="records") as reader:
        while (chunks := await reader.read(0)) or follow:
            out.writelines((value or b"") + b"\n" for chunk in chunks for value in chunk.values)
            out.flush()
            if not chunks:
                await asyncio.sleep(_READ_SECONDS)
    return 0


async def print_topics(stream: Stream) -> int:
    """Print the topics that have records, one a line, by name."""
    async with stream.reader(".*", group="records") as reader:
        await reader.read(0)
        ends = reader.ends()
    for topic in sorted({partition.rpartition("/")[0] for partition, end in ends.items() if end}):
        click.echo(topic)
    return 0


async def append_feedback(stream: Stream, topic: str) -> int:
    """Append each line of standard input to a topic; returns 1 if feedback would not count one of them."""
    code = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        value = line.rstrip(b"\r\n")
        if isinstance(found := read(value), Skipped):
            click.echo(f"line {number} is not counted: {found.reason}", err=True)
            code = 1
        await stream.publish(topic, [value])
    return code
