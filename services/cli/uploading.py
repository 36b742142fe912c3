"""Uploading a file for a job, with progress on stderr."""

import sys
import time
from pathlib import Path

from services.cli.exits import Exit, Failure
from services.cli.session import Session
from services.cli.watching import PERIOD_SECONDS, Drawing, Glance, open_drawing

IN_PARTS_BYTES = 2**30
PAUSES = (1, 2, 4, 8, 16, 30)
_BAR_SECONDS = 0.1


def upload_file(session: Session, app_id: str, file: Path) -> str:
    """Upload the file; returns its name for a job."""
    with open_drawing() as drawing:
        progress = _UploadProgress(drawing, file.name)
        if file.stat().st_size <= IN_PARTS_BYTES:
            return _send_in_parts(session, app_id, file, progress)
        return str(session.api.uploads.put(file, on_progress=progress))


class _UploadProgress:
    """Draws the progress now and then, and always at the end."""

    def __init__(self, drawing: Drawing, title: str) -> None:
        self.has_begun = False
        self._drawing = drawing
        self._title = title
        self._period = _BAR_SECONDS if sys.stderr.isatty() else PERIOD_SECONDS
        self._drawn_at = time.monotonic()
        self._drawn = -1

    def __call__(self, done: int, total: int) -> None:
        self.has_begun = True
        now, over = time.monotonic(), done == total
        if done != self._drawn and (over or now - self._drawn_at >= self._period):
            self._drawn_at, self._drawn = now, done
            self._drawing.draw(Glance(title=self._title, state="uploading", done=done, total=total, over=over))


def _send_in_parts(session: Session, app_id: str, file: Path, progress: _UploadProgress) -> str:
    """Send the file, and continue after a broken connection. An API that never answered is not waited for."""
    from carillon.errors import Unavailable

    for pause in (*PAUSES, None):
        try:
            return str(session.api.uploads.upload_csv(app_id, file, on_progress=progress).csv_path)
        except Unavailable as error:
            if error.status is None and not progress.has_begun:
                raise
            if pause is None:
                advice = "What was sent is kept for a day: the same command goes on where this one stood."
                raise Failure(Exit.UNREACHABLE, str(error), advice) from error
            session.out.tell(f"{error}; going on in {pause} s.")
            time.sleep(pause)
    raise AssertionError("the last pause is none")
