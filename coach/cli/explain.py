"""`coach explain`: a rule's page (what it sees, why it matters, when it stays silent, what to do) with the
thresholds in force. Also explains a state, a reason of Slurm, a column of a screen, or a topic."""

from __future__ import annotations

import argparse

from coach.analysis.explaining.words import Explained, explain_word
from coach.cli.text import print_line, print_table
from coach.config import Settings
from coach.launch.topics import find_topics, near_topics, topic_of
from coach.model.errors import UserError
from coach.rules.documentation import page_text, rule_page
from coach.rules.registry import find, rule_classes
from coach.workflows.judging.judge import rules_of, thresholds_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="a rule's code or name, a state or reason of Slurm (OUT_OF_MEMORY, Resources, idle+drain), a "
        "column of a screen (queue.left), or a topic (lustre_striping); default: list all rules and topics",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list all rules, then those never seen in a real run, then all topics",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    rules_of(settings)  # raises UserError for an error in the config
    if args.code is not None and args.list:
        raise UserError("--list lists all rules: give it without a code")
    if args.code is None:
        _print_list(settings)
        return 0
    try:
        rule = find(args.code)
    except UserError as error:
        _print_other(args.code, error)
        return 0
    page = rule_page(rule, thresholds_of(settings, rule.code), rule.code in settings.muted_rules)
    for line in page_text(page).splitlines():
        print_line(line)
    advice = settings.advice.get(rule.code)
    if advice is not None:
        print_line(f"The site says: {advice.text}" + (f" ({advice.url})" if advice.url else ""))
    return 0


def _print_other(word: str, unknown: UserError) -> None:
    """Explain a word that is no rule: a word of Slurm or of a screen, or a topic. Raises `unknown`, with near
    topics."""
    if (explained := explain_word(word)) is not None:
        _print_word(explained)
    elif (topic := topic_of(word)) is not None:
        for line in topic.text().splitlines():
            print_line(line)
    elif near := near_topics(word):
        raise UserError(f"there is no rule and no topic {word!r}", f"did you mean {' or '.join(near)}?")
    elif rules := _rules_about(word):
        raise UserError(unknown.message, f"near it: {', '.join(rules)}; `coach explain --list` lists all")
    elif (hint := unknown.hint or "").startswith("did you mean"):
        raise UserError(unknown.message, hint)
    else:
        raise UserError(unknown.message, "`coach explain --list` lists the rules and topics")


def _rules_about(word: str) -> list[str]:
    """Code and name of at most eight rules that have the word in their name, their cause or their summary."""
    wanted = word.casefold()
    found = [
        f"{rule.code} {rule.name}"
        for rule in rule_classes()
        if wanted in f"{rule.name} {rule.cause} {rule_page(rule).summary}".casefold()
    ]
    return found[:8]


def _print_word(explained: Explained) -> None:
    """Print a state, a reason or a column."""
    print_line(f"{explained.name} {explained.value}".strip())
    for label, text in (("is", explained.what), ("to do", explained.to_do), ("from", explained.origin)):
        if text:
            print_line(f"  {label:<6} {text}")


def _print_list(settings: Settings) -> None:
    pages = [rule_page(rule, is_muted=rule.code in settings.muted_rules) for rule in rule_classes()]
    for are_proven, heading in (
        (True, ""),
        (False, "Unproven: never seen in a real run, so their severity is at most info"),
    ):
        shown = [page for page in pages if page.is_proven is are_proven]
        if not shown:
            continue
        if heading:
            print()
            print_line(heading)
        print_table(
            ("CODE", "NAME", "SEVERITY", "WHAT"),
            [
                (page.code, page.name, "muted" if page.is_muted else page.severity, page.summary)
                for page in shown
            ],
        )
    print()
    print_table(("TOPIC", "WHAT"), [(topic.name, topic.title) for topic in find_topics()])
