"""How a full cluster goes: how fast those that fit nowhere are told, how fast urgent pods get room, what it costs.

.venv/bin/python -m bench.saturation core [full|churn|both] [--profile FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.saturation import core_run, real_run
from bench.stand.figures import lines


def main() -> None:
    """Run one experiment and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.saturation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    core_run.add_arguments(commands.add_parser("core", help="the coordinator's core alone, in virtual time"))
    for name, what in (("full", "urgent pods in a full cluster"), ("churn", "placing beside pods that wait"),
                       ("soak", "the same for an hour")):  # fmt: skip
        real_run.add_arguments(commands.add_parser(name, help=what), name)
    for command in commands.choices.values():
        command.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")
    options = parser.parse_args()
    found = core_run.run(options) if options.command == "core" else real_run.run(options)
    print("\n".join(lines(found)))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
