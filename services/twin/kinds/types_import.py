"""Write ``go_types.json``: the fields of the Kubernetes API types, read from the Go sources of a release.

Why: what a real API server keeps, drops, prints as null or refuses with 400 follows from its Go structs (json names,
``omitempty``, pointer or value, quantity or string). A table of those facts makes one decoder right for every kind.
Run by hand when the supported release changes, never at run time::

    python -m services.twin.kinds.types_import core/v1=DIR/core/v1/types.go meta/v1=... > go_types.json

Arguments are ``PACKAGE=FILE``; PACKAGE as in ``k8s.io/api/PACKAGE`` (``meta/v1`` for apimachinery). It refuses what it
does not understand: a field type it cannot resolve ends it with the name of the field.

Source of the checked-in table: k8s.io/api, apimachinery and apiextensions-apiserver, branches release-1.36.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_EMPTY_STRUCT = re.compile(r"^type (\w+) struct\s*\{\s*\}", re.MULTILINE)
_ALIAS = re.compile(r"^type (\w+) (?!struct\b)(\S.*)$", re.MULTILINE)
_FIELD = re.compile(r"^\s*(?:(\w+)\s+)?([\w.*\[\]]+)\s+`json:\"([^\"]*)\"([^`]*)`")
_IMPORT = re.compile(
    r'^\s+(\w+)?\s*"k8s\.io/(?:api|apimachinery/pkg/apis|apiextensions-apiserver/pkg/apis)/(\S+)"', re.MULTILINE
)

BUILTIN = {
    "string": "string", "bool": "bool", "int": "int64", "int32": "int32", "int64": "int64", "uint8": "int32",
    "float64": "float", "byte": "byte", "resource.Quantity": "quantity", "intstr.IntOrString": "intstr",
    "runtime.RawExtension": "raw", "runtime.Object": "raw", "interface{}": "raw", "types.UID": "string",
    "types.NodeName": "string",
}  # fmt: skip
META = {
    "Time": "time", "MicroTime": "microtime", "FieldsV1": "raw", "Duration": "string",
}  # fmt: skip
OPAQUE = {"JSON": "raw", "JSONSchemaPropsOrBool": "raw", "JSONSchemaPropsOrArray": "raw",
          "JSONSchemaPropsOrStringArray": "raw", "JSONSchemaProps": "raw"}  # fmt: skip


class _Package:
    def __init__(self, name: str, source: str, others: dict[str, _Package]) -> None:
        self.name = name
        self.others = others
        self.imports = {(alias or path.split("/")[-1]): path for alias, path in _IMPORT.findall(source)}
        self.structs = dict(_STRUCT.findall(source))
        self.structs.update(dict.fromkeys(_EMPTY_STRUCT.findall(source), ""))
        self.aliases = {n: t.split("//")[0].strip() for n, t in _ALIAS.findall(source) if n not in self.structs}

    def resolve(self, go: str) -> str:
        """The table's spelling of one Go type: ``*T`` pointer, ``[]T`` list, ``{}T`` map, ``pkg.Type`` struct."""
        if go.startswith("*"):
            return "*" + self.resolve(go[1:])
        if go == "[]byte":
            return "bytes"
        if go.startswith("[]"):
            return "[]" + self.resolve(go[2:])
        if match := re.match(r"map\[[\w.]+\](.*)", go):
            return "{}" + self.resolve(match[1])
        if go in BUILTIN:
            return BUILTIN[go]
        if "." in go:
            alias, bare = go.split(".")
            package = self.imports.get(alias, "meta/v1" if alias == "metav1" else "")
            if package == "meta/v1" and bare in META:
                return META[bare]
            if package in self.others and bare in self.others[package].aliases:
                return self.others[package].resolve(bare)
            return f"{package}.{bare}"
        if self.name == "meta/v1" and go in META:
            return META[go]
        if self.name == "apiextensions/v1" and go in OPAQUE:
            return OPAQUE[go]
        if go in self.structs:
            return f"{self.name}.{go}"
        if go in self.aliases:
            return self.resolve(self.aliases[go])
        raise SystemExit(f"{self.name}: unknown Go type {go}")

    def fields(self, struct: str) -> dict[str, str]:
        """JSON name -> ``type`` with the marks ``?`` (omitempty), ``~`` (omitzero), ``@key`` (patch merge key)."""
        found: dict[str, str] = {}
        for line in self.structs[struct].splitlines():
            match = _FIELD.match(line)
            if not match or line.lstrip().startswith("//"):
                continue
            _, go, tag, rest = match.groups()
            name, *flags = tag.split(",")
            if name == "-":
                continue
            if not name:
                found[f"<{go}>"] = self.resolve(go.lstrip("*"))
                continue
            merge = re.search(r'patchMergeKey:"([^"]*)"', rest)
            strategy = re.search(r'patchStrategy:"([^"]*)"', rest)
            kind = self.resolve(go)
            marks = ("?" if "omitempty" in flags else "") + ("~" if "omitzero" in flags else "")
            if strategy:
                marks += "@" + (merge[1] if merge else "") + "@" + strategy[1]
            found[name] = f"{kind} {marks}".strip()
        return found


def main(arguments: list[str]) -> None:
    """Read every ``PACKAGE=FILE`` and print the table, inlined structs flattened."""
    packages: dict[str, _Package] = {}
    for argument in arguments:
        name, file = argument.split("=", 1)
        source = Path(file).read_text(encoding="utf-8")
        packages[name] = _Package(name, source, packages)
    table = {f"{p.name}.{s}": p.fields(s) for p in packages.values() for s in p.structs}
    for struct, fields in table.items():
        for mark, target in [(k, v) for k, v in fields.items() if k.startswith("<")]:
            del fields[mark]
            for name, kind in table.get(target, {}).items():
                fields.setdefault(name, kind)
        if struct.endswith("List"):
            table[struct] = {}
    reached: set[str] = set()
    todo = [
        s
        for s, f in table.items()
        if "metadata" in f and "kind" in f and f["metadata"].startswith("meta/v1.ObjectMeta")
    ]
    todo += ["autoscaling/v1.Scale", "meta/v1.DeleteOptions", "policy/v1.Eviction", "meta/v1.LabelSelector"]
    while todo:
        struct = todo.pop()
        if struct in reached or struct not in table:
            continue
        reached.add(struct)
        todo += [re.sub(r"^(\*|\[\]|\{\})+", "", kind.split(" ")[0]) for kind in table[struct].values()]
    unknown = {k.split(" ")[0] for s in reached for k in table[s].values() if "/" in k} - {""}
    for kind in unknown:
        bare = re.sub(r"^(\*|\[\]|\{\})+", "", kind)
        if bare not in table:
            raise SystemExit(f"no such type: {bare}")
    rows = [f"{json.dumps(s)}: {json.dumps(table[s], separators=(',', ':'))}" for s in sorted(reached)]
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
