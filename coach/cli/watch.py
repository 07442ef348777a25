"""`coach watch`: follows runs and jobs until the last one has ended, and reports why failed ones failed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from coach.analysis.jobs.watched_jobs import News
from coach.analysis.judging.verdict_object import diagnosis_of, has_gone_wrong, public_object, worst_severity
from coach.analysis.spelling.printable import cut, printable
from coach.cli.cluster import add_options, backend_of
from coach.cli.text import print_line, say
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.render.why import why_lines
from coach.workflows.watching.until_ended import EndWatch

_FAIL_ON = {severity.word: severity for severity in Severity}
_WIDTH = 300
_UNREAD, _INTERRUPTED = 2, 130


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "jobs", nargs="*", metavar="RUN", help="a run or a job id (default: all of yours that wait or run)"
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(_FAIL_ON),
        default="warning",
        help="exit with status 1 at a finding of this severity or a higher one (default: warning)",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status as for `coach check`: 1 if one has a finding at or above --fail-on, else 2 if one cannot be
    read, else 0; 130 after Ctrl-C."""
    backend = backend_of(args.backend, settings)
    is_json = args.format == "json"
    watch = EndWatch(args.jobs, settings, backend, os.environ)
    teller = _Teller(watch, is_json)
    try:
        watch.follow(teller.tell, _tell_problem)
    except KeyboardInterrupt:
        left = watch.num_left
        goes = "goes" if left == 1 else "go"
        say(f"stopped watching; {left} {goes} on as before")
        return _INTERRUPTED
    if is_json:
        ended = teller.verdicts.values()
        jobs = [public_object(each) for each in ended]
        print(json.dumps({"schema": 1, "jobs": jobs}, indent=2))
    elif not teller.has_said:
        print_line("You have no pending or running job.")
    worst = [worst_severity(each) for each in teller.verdicts.values()]
    if any(each is not None and each >= _FAIL_ON[args.fail_on] for each in worst):
        return 1
    return _UNREAD if teller.unread else 0


class _Teller:
    """Prints news as it arrives; on standard error if standard output carries JSON."""

    def __init__(self, watch: EndWatch, is_json: bool) -> None:
        self._watch = watch
        self._out = sys.stderr if is_json else sys.stdout
        self.has_said = False
        self.verdicts: dict[str, Mapping[str, Any]] = {}
        """Name → the verdict on an ended run or job."""
        self.unread: set[str] = set()
        """Names of ended runs and jobs without a verdict."""

    def tell(self, news: News) -> None:
        clock = f"{datetime.fromtimestamp(news.time_s, UTC).astimezone():%H:%M:%S}"
        self.verdicts.pop(news.name, None)  # it may have been requeued
        self.unread.discard(news.name)
        line = f"{news.name}  {news.words}"
        if not news.has_ended:
            self._say(f"{clock}  {line}")
            return
        try:
            self.verdicts[news.name] = verdict = self._watch.verdict(news.name)
        except UserError as error:
            self.unread.add(news.name)
            self._say(f"{clock}  {line}: {error.message}")
            return
        first, *more = why_lines(verdict)
        self._say(f"{clock}  {first}")
        for each in more if has_gone_wrong(diagnosis_of(verdict)) else ():
            self._say(f"{' ' * len(clock)}{each}")

    def _say(self, line: str) -> None:
        self.has_said = True
        print_line(cut(printable(line), _WIDTH), self._out)
        self._out.flush()


def _tell_problem(problem: str | None) -> None:
    say(f"the queue does not answer, still waiting: {problem}" if problem else "the queue answers again")
