"""The compiler's view of a declared type: objects are messages, so a misspelt field or a wrong type fails at once.

Google's compiler knows types of protobuf only; each object that a schema declares becomes a message of a pool of its
own. What a message cannot hold (lists of lists, maps of lists) is dynamic to it.
"""

from __future__ import annotations

from typing import Any

from twin.custom.declared import Declared, is_reserved

_PACKAGE = "self"
_WELL_KNOWN = {"dyn": "google.protobuf.Value", "timestamp": "google.protobuf.Timestamp"}
_WELL_KNOWN["duration"] = "google.protobuf.Duration"
DYNAMIC = Declared("dyn", 1)


def _entry_name(field: str) -> str:
    """What protobuf wants the message of a map's entries to be called."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


class Typed:
    """The types of one place, and the pool that defines them. Raises ``ImportError`` without protobuf."""

    def __init__(self, of: Declared) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2

        self.pool = descriptor_pool.DescriptorPool()
        self._kinds = descriptor_pb2.FieldDescriptorProto
        self._file = descriptor_pb2.FileDescriptorProto(name="self.proto", package=_PACKAGE, syntax="proto2")
        for module in (duration_pb2, struct_pb2, timestamp_pb2):
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            self._file.dependency.append(module.DESCRIPTOR.name)
        self.name = self._name(of)
        """Of the type, as the compiler reads it."""
        self.pool.AddSerializedFile(self._file.SerializeToString())

    def _name(self, of: Declared) -> str:
        if of.kind == "list" and of.element is not None:
            return f"list<{self._name(of.element)}>"
        if of.kind == "map" and of.element is not None:
            return f"map<string,{self._name(of.element)}>"
        return f"{_PACKAGE}.{self._message(of)}" if of.kind == "object" else of.kind

    def _message(self, of: Declared) -> str:
        message = self._file.message_type.add(name=f"T{len(self._file.message_type)}")
        # names of fields are compared as they are: fooBar and foo_bar are two
        message.options.deprecated_legacy_json_field_conflicts = True
        # a word that the language reserves may be written as it is, too
        spoken = {name[2:-2]: field for name, field in of.fields.items() if is_reserved(name[2:-2])}
        for number, (name, field) in enumerate({**of.fields, **spoken}.items(), 1):
            # the numbers in between are protobuf's own
            number = number if number < 19000 else number + 1000
            self._field(message, name, number, field)
        return str(message.name)

    def _field(self, message: Any, name: str, number: int, of: Declared) -> None:
        field = message.field.add(name=name, number=number, label=self._kinds.LABEL_OPTIONAL)
        element = of.element
        if element is not None and element.kind not in ("list", "map"):
            if of.kind == "list":
                field.label = self._kinds.LABEL_REPEATED
                self._set_type(field, element)
                return
            entry_name = _entry_name(name)
            if any(one.name == entry_name for one in message.nested_type):
                self._set_type(field, DYNAMIC)
                return
            field.label = self._kinds.LABEL_REPEATED
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=self._kinds.LABEL_OPTIONAL)
            key.type = self._kinds.TYPE_STRING
            self._set_type(entry.field.add(name="value", number=2, label=self._kinds.LABEL_OPTIONAL), element)
            field.type, field.type_name = self._kinds.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"
        else:
            self._set_type(field, of)

    def _set_type(self, field: Any, of: Declared) -> None:
        kinds = self._kinds
        plain = {
            "bool": kinds.TYPE_BOOL, "int": kinds.TYPE_INT64, "double": kinds.TYPE_DOUBLE,
            "string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES,
        }  # fmt: skip
        if of.kind in plain:
            field.type = plain[of.kind]
        elif of.kind == "object":
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{self._message(of)}"
        elif of.kind == "list":
            field.type, field.type_name = kinds.TYPE_MESSAGE, ".google.protobuf.ListValue"
        else:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_WELL_KNOWN.get(of.kind, _WELL_KNOWN['dyn'])}"
