"""`coach explain`: what a rule sees, why it matters, when it stays silent, what to do; with the thresholds in force."""

from __future__ import annotations

import argparse

from coach.cli.text import print_line, print_table, printable
from coach.config import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="a rule's code or name (default: list all rules)"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from coach.rules.documentation import page_text, rule_page
    from coach.rules.registry import find, rule_classes
    from coach.workflows.diagnosing import rules_of

    rules_of(settings)  # refuses what is wrong in the config
    if args.code is None:
        pages = [rule_page(rule) for rule in rule_classes()]
        print_table(
            ("CODE", "NAME", "SEVERITY", "WHAT"),
            [(page.code, page.name, page.severity, page.summary) for page in pages],
        )
        return 0
    rule = find(args.code)
    page = rule_page(rule, settings.thresholds.get(rule.code), rule.code in settings.muted_rules)
    for line in page_text(page).splitlines():
        print_line(line)
    advice = settings.advice.get(rule.code)
    if advice is not None:
        print_line(printable(f"The site says: {advice.text}" + (f" ({advice.url})" if advice.url else "")))
    return 0
