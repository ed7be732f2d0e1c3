"""``conclave import-config``: a kube-scheduler's configuration as a file of profiles, and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shared.errors import ConfigError


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the profiles here; default: standard output.")
@click.option("--strict", is_flag=True, help="Write nothing where pods may be placed otherwise than before.")
def import_config(file: Path, out: Path | None, strict: bool) -> int:
    """Make profiles of FILE, a KubeSchedulerConfiguration v1 (kube-scheduler's --config).

    What is without effect here, or differs, is told on standard error, a line each, and stands in the file as comments.
    """
    import yaml

    from services.cli.imports.kube_scheduler import import_config as imported
    from shared.runtime.process.profile_arguments import Wrong
    from shared.runtime.process.profiles_file import document_of, parse_profiles, read_yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - they are not read
            return True

    document = read_yaml(file, str(file))
    try:
        found = imported(document)
    except Wrong as error:
        raise ConfigError(f"{file}: {error}") from None
    made = {"profiles": found.profiles}
    comments = [f"# {_one_line(line)}" for line in (f"Of {file.name}, by conclave import-config.", *found.lines)]
    text = "\n".join(comments) + "\n" + yaml.dump(made, Dumper=Plain, sort_keys=False)
    parse_profiles(document_of(text.encode(), str(file)), str(file))  # nothing is written that would not start
    for line in found.lines:
        click.echo(f"{file}: {_one_line(line)}", err=True)
    if strict and found.lost:
        raise ConfigError(f"{file}: {found.lost} of these change where pods go; correct them, or leave out --strict")
    if out is None:
        click.echo(text, nl=False)
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {out}: {error.strerror}; give a file that can be written") from None
    click.echo(f"{out}: {len(found.profiles)} profiles, {len(found.lines)} lines of what differs")
    return 0


def _one_line(text: str) -> str:
    """What the input says may be of several lines, which must not become fields of the file."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
