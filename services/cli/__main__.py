"""Entry point of the ``conclave`` command: bad input is one line on stderr and exit code 2; nothing else happens here.

Exit codes, stable: 0 it did what was asked; 1 an invariant was broken or a kill was not recovered from; 2 bad input.
"""

from __future__ import annotations

import shared.runtime.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import sys

import click

from services.cli.app import conclave
from shared.errors import ConfigError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of ``conclave ARGUMENTS``."""
    try:
        result = conclave.main(arguments, prog_name="conclave", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "conclave"
        _complain(f"{path}: {error.format_message()} (see {path} --help)")
        return EXIT_BAD_INPUT
    except ConfigError as error:
        _complain(f"conclave: {error}")
        return EXIT_BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def _complain(text: str) -> None:
    sys.stderr.write(" ".join(text.split()) + "\n")


if __name__ == "__main__":
    main()
