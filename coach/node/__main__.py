"""Start node code: `python -m coach.node COMMAND`, or by path `python CODE/coach/node COMMAND`.

The path form works from any copy of coach's files, so a job does not depend on coach's own venv.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import List, Optional

if not __package__:
    # Started by path, the interpreter puts this directory first on sys.path, where it would hide other
    # packages' modules.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from coach.harmless import guarded

COMMANDS = {
    "run": ("coach.node.supervise", "run a command beside the sampler, in a run directory"),
    "sample": ("coach.node.sample", "sample GPUs and processes of this node"),
    "stacks": ("coach.node.stacks", "record the stacks of every rank on this node"),
    "segment": ("coach.node.segment", "record a segment of a long training, and find its checkpoint"),
    "brake": ("coach.node.brake", "check if the earlier runs of a sweep failed with the same cause"),
    "curtail": ("coach.node.curtail", "end the training of a batch file before its time limit"),
    "judge": ("coach.node.judge", "check a run that has ended, with the interpreter that has coach"),
    "ended": ("coach.node.ended", "record in a run directory how the run ended"),
}


def main(argv: Optional[List[str]] = None) -> int:
    """Run one command. Only its module is loaded."""
    sys.stderr = guarded(sys.stderr)  # standard output is for the script that called
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in COMMANDS:
        summary = "\n".join(f"  {name:<9}{what}" for name, (_, what) in COMMANDS.items())
        is_help = bool(arguments) and arguments[0] in ("-h", "--help")
        print(f"usage: python -m coach.node COMMAND …\n{summary}", file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    name = arguments[0]
    module = import_module(COMMANDS[name][0])
    what = COMMANDS[name][1]
    parser = argparse.ArgumentParser(prog=f"coach {name}", description=f"{what[:1].upper()}{what[1:]}.")
    module.configure(parser)
    status: int = module.run(parser.parse_args(arguments[1:]))
    return status


if __name__ == "__main__":
    sys.exit(main())
