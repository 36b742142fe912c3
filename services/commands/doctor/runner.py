"""Asks all questions of all servers at once. A server that does not answer in time has given an answer, too.

The first questions to a server come one after the other: is anybody there, and are we let in? The others are not asked
where one of these is answered by a fault. All questions end before `ALL_SECONDS`, and none takes more than
`ANSWER_SECONDS`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from services.commands.doctor.examination import Examination, Question
from services.commands.doctor.findings import Finding, Level, Opinions, fault
from shared.domain.errors import CarillonError, Denied

ANSWER_SECONDS = 5.0
ALL_SECONDS = 8.0
CLOSING_SECONDS = 0.5


class Round:
    """One round of questions. `abandoned` are those that did not even end when they were told to."""

    def __init__(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + ALL_SECONDS
        self._entries: dict[str, asyncio.Future[bool]] = {}
        self.abandoned = False

    async def examine_all(self, examinations: Iterable[Examination]) -> list[Finding]:
        """The findings, in the order of the servers and their questions."""
        found = await asyncio.gather(*(self._examine(examination) for examination in examinations))
        return [finding for findings in found for finding in findings]

    async def close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close what was opened, but do not wait long."""
        await self._end(asyncio.ensure_future(close()), CLOSING_SECONDS)

    async def _examine(self, examination: Examination) -> list[Finding]:
        findings = await self._enter(examination)
        let_in = all(finding.level is not Level.FAULT for finding in findings)
        self._entry(examination.of).set_result(let_in)
        others = [question for question in examination.questions if let_in and not question.first]
        for answers in await asyncio.gather(*(self._ask(examination, question) for question in others)):
            findings += answers
        return findings

    async def _enter(self, examination: Examination) -> list[Finding]:
        findings: list[Finding] = []
        for question in (question for question in examination.questions if question.first):
            findings += await self._ask(examination, question)
            if any(finding.level is Level.FAULT for finding in findings):
                break
        return findings

    def _entry(self, of: str) -> "asyncio.Future[bool]":
        """Whether that server has let us in, once it is known."""
        return self._entries.setdefault(of, asyncio.get_running_loop().create_future())

    async def _ask(self, examination: Examination, question: Question) -> list[Finding]:
        if not all([await self._entry(server) for server in question.needs]):
            return []
        opinions = await self._answer(examination, question)
        return [
            Finding(opinion.level, examination.of, question.name, opinion.sentence, opinion.remedy)
            for opinion in opinions
        ]

    async def _answer(self, examination: Examination, question: Question) -> Opinions:
        seconds = max(0.0, min(ANSWER_SECONDS, self._deadline - asyncio.get_running_loop().time()))
        task = asyncio.ensure_future(question.ask(examination))
        # Not `timeout`: a driver may swallow its cancellation, and must not keep us.
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            await self._end(task, 0)
            return fault(f"no answer within {seconds:.0f} s")
        try:
            return task.result()
        except Denied as error:
            return fault(f"access is denied: {error}")
        except (CarillonError, OSError) as error:
            return fault(str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - one question that fails must not silence the others
            return fault(f"the question itself failed, which is a fault of ours: {error!r}")

    async def _end(self, task: "asyncio.Future[Any]", seconds: float) -> None:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.cancel()
            self.abandoned = True
