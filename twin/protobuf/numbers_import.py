"""Write ``field_numbers.json``: the protobuf field numbers of the Kubernetes API types, from the Go sources' tags.

Run by hand when the supported release changes, never at run time::

    python -m twin.protobuf.numbers_import core/v1=DIR/core/v1/types.go ... > field_numbers.json

An entry is the JSON name of a field, or ``+TYPE`` for a message whose fields JSON shows in its holder. Source of the
checked-in table: k8s.io/api and apimachinery, branches release-1.36.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(
    r"^\s*(?:\w+\s+)?([\w.*\[\]]+)\s+`.*?json:\"([^\"]*)\".*?protobuf:\"\w+,(\d+)[^\"]*\"", re.MULTILINE
)


def numbers_of(package: str, source: str) -> dict[str, dict[str, str]]:
    """Field numbers of every struct in one file."""
    found: dict[str, dict[str, str]] = {}
    for name, body in _STRUCT.findall(source):
        fields = {}
        for go, tag, number in _FIELD.findall(body):
            json_name = tag.partition(",")[0]
            fields[number] = json_name or f"+{package}.{go.lstrip('*')}"
        if fields:
            found[f"{package}.{name}"] = fields
    return found


def main() -> None:
    """Print the table, one type per line."""
    table: dict[str, dict[str, str]] = {}
    for argument in sys.argv[1:]:
        package, _, file = argument.partition("=")
        table.update(numbers_of(package, Path(file).read_text()))
    rows = (f"{json.dumps(name)}: {json.dumps(table[name], separators=(',', ':'))}" for name in sorted(table))
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
