"""Does docs/operating.md describe the command as it is?"""

from __future__ import annotations

import argparse

from groupqueue.management import verbs
from groupqueue.management.commands.group_queues import DOCTOR, VERBS, WATCH, Command
from tests.documents import DOCS, coded, rows, section

OPERATING = DOCS / "operating.md"
HEADING = "The command line"


def subparsers() -> dict[str, argparse.ArgumentParser]:
    parser = Command().create_parser("manage.py", "group_queues")
    [action] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(action.choices)


def test_the_table_has_every_verb_in_the_order_of_the_help():
    assert [coded(row[0])[0] for row in rows(OPERATING, HEADING)] == list(subparsers())
    assert list(subparsers()) == [*VERBS, DOCTOR, WATCH]


def test_every_option_and_argument_is_described():
    text = section(OPERATING, HEADING)
    named = set(coded(text)) | {word for code in coded(text) for word in code.split()}

    for verb, parser in subparsers().items():
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or action.dest == "help":
                continue
            name = action.option_strings[0] if action.option_strings else action.metavar
            assert name in named, f"{verb} {name}"


def test_every_verb_and_option_has_a_help_text():
    for verb, parser in subparsers().items():
        assert parser.description, verb
        for action in parser._actions:
            assert action.help or action.metavar in ("GROUP", "ID"), f"{verb} {action}"


def test_the_exit_codes_are_those_of_the_code():
    codes = {value for name, value in vars(verbs).items() if name.startswith("EXIT_")}
    text = section(OPERATING, HEADING).partition("| exit code |")[2]

    listed = {int(line.split("|")[1]) for line in text.splitlines() if line[2:3].isdigit()}
    assert listed == codes | {0}
