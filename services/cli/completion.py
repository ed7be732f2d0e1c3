"""``conclave completion bash|zsh|fish``: the script that makes the shell complete commands, flags and names.

Names of nodes, policies and settings are asked of the server while one types, within a short time. ``kubectl conclave``
is completed by the program ``kubectl_complete-conclave``, which kubectl 1.26 or newer runs by itself.
"""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

SHELLS = ("bash", "zsh", "fish")
COBRA_NO_FILES = ":4"
"""What kubectl's completion (cobra) reads on the last line: these are all, do not offer files."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: source <(conclave completion bash)          in ~/.bashrc
    zsh:  source <(conclave completion zsh)           in ~/.zshrc, after compinit
    fish: conclave completion fish | source           in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "conclave", "_CONCLAVE_COMPLETE").source())


def kubectl_completions(root: click.Command, arguments: list[str], obj: object) -> list[str]:
    """What kubectl's completion wants: a candidate per line, and the directive. The last argument is incomplete."""
    *before, incomplete = arguments or [""]
    completer = ShellComplete(root, {"obj": obj}, "kubectl conclave", "_KUBECTL_CONCLAVE_COMPLETE")
    found = completer.get_completions(before, incomplete)
    return [f"{item.value}\t{item.help}" if item.help else item.value for item in found] + [COBRA_NO_FILES]
