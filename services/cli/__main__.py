"""Entry points ``conclave`` and ``kubectl conclave``: what goes wrong is one line on stderr and an exit code.

Exit codes, stable:

- 0: it did what was asked.
- 1: it failed, and asking again may help: nobody answers or leads, the outcome is not known; an invariant was broken
  (``demo``, ``audit``); there is no such pod (``explain``).
- 2: bad input, or refused: nothing was changed.
- 130: interrupted.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import errno
import sys

import click

from services.cli.app import conclave
from services.cli.server.errors import ServerFailed
from services.cli.server.options import KUBECTL
from shared.errors import ConfigError, Conflict

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing that say something about the disk, and nothing about us."""


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def kubectl_main() -> None:
    """Run as kubectl's plugin (``kubectl conclave``): --context and -n mean kubectl's."""
    sys.exit(run(sys.argv[1:], name="kubectl conclave", obj=KUBECTL))


def run(arguments: list[str], *, name: str = "conclave", obj: str | None = None) -> int:
    """The exit code of ``conclave ARGUMENTS``."""
    for text in arguments:
        if not _is_utf8(text):
            # names, URLs and reasons go into requests; some ways there drop what they cannot encode, and ask for less
            _complain(f"{name}: {text[:80]!r} is not UTF-8; write it so, or look at the terminal's locale")
            return EXIT_BAD_INPUT
    try:
        result = conclave.main(
            arguments, prog_name=name, complete_var="_CONCLAVE_COMPLETE", standalone_mode=False, obj=obj
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
        _complain(f"{path}: {error.format_message()} (see {path} --help)")
        return EXIT_BAD_INPUT
    except ConfigError as error:
        _complain(f"conclave: {error}")
        return EXIT_BAD_INPUT
    except (ServerFailed, Conflict) as error:
        _complain(f"conclave: {error}")
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _complain(f"conclave: what it says cannot be written: {error.strerror}; make room, or write it elsewhere")
        return _reader_gone()
    return result if isinstance(result, int) else 0


def _is_utf8(text: str) -> bool:
    """Bytes of the command line that Python could not decode are lone surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reader_gone() -> int:
    """``conclave nodes | head``: whoever read us has enough. The interpreter must not flush into it again."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED


def _complain(text: str) -> None:
    sys.stderr.write(" ".join(text.split()) + "\n")


if __name__ == "__main__":
    main()
