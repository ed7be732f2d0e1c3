"""Where the installed programs begin: while commands load, Ctrl-C just ends us.

Why apart from ``__main__``: loading takes most of a second on a busy machine, and an interrupt in it would show a
traceback of imports. So nothing of ours is imported before that is settled.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Run the command line and exit."""
    with _quiet_interrupt():
        from services.cli.__main__ import main as run
    run()


def kubectl_main() -> None:
    """Run as kubectl's plugin (``kubectl conclave``) and exit."""
    with _quiet_interrupt():
        from services.cli.__main__ import kubectl_main as run
    run()


def complete_for_kubectl() -> None:
    """Run as ``kubectl_complete-conclave``: say to kubectl's completion what may follow."""
    with _quiet_interrupt():
        from services.cli.app import conclave
        from services.cli.completion import kubectl_completions
        from services.cli.server.options import KUBECTL
    sys.stdout.write("\n".join(kubectl_completions(conclave, sys.argv[1:], KUBECTL)) + "\n")


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    """SIGINT ends the process at once, which a shell shows as 130. Ignored stays ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
