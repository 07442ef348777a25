"""JSON Schemas (draft 2020-12) from the types of coach's documents: dataclasses, TypedDicts and marks."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from coach.model.json_types import Together
from reference_pages.docstrings import class_sentence, field_sentences

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


class Maker:
    """Makes schemas that share definitions."""

    def __init__(self, optional: frozenset[type] = frozenset()) -> None:
        """Of the classes in `optional` no field is required: a writer may leave each out."""
        self.definitions: dict[str, Schema] = {}
        self._optional = optional

    def of(self, said: Any) -> Schema:
        """The schema of a type."""
        if isinstance(said, Together):
            return self._named(said.name, said.classes)
        plain = _PLAIN.get(said) if said.__hash__ is not None else None
        if plain is not None:
            return dict(plain)
        origin, arguments = get_origin(said), get_args(said)
        if origin is Annotated:
            return self.of(arguments[1])
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        return self._class(said) if origin is None else self._container(origin, arguments)

    def _container(self, origin: type, arguments: Sequence[Any]) -> Schema:
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is tuple and arguments[-1] is not ...:
            items = [self.of(item) for item in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if issubclass(origin, Sequence | Set):
            return {"type": "array", "items": self.of(arguments[0])}
        raise TypeError(f"{origin} has no JSON form")

    def _union(self, members: Sequence[Any]) -> Schema:
        """In the shortest form: a list of types, else any of several."""
        parts = [self.of(member) for member in members]
        if all(part.keys() == {"type"} for part in parts):
            return {"type": sorted({part["type"] for part in parts})}
        if all(part.keys() <= {"enum", "const"} or part == {"type": "null"} for part in parts):
            return {"enum": [value for part in parts for value in part.get("enum", [part.get("const")])]}
        return {"anyOf": parts}

    def _class(self, said: Any) -> Schema:
        if isinstance(said, type) and issubclass(said, Enum):
            return {"enum": [member.value for member in said]}
        if not (is_dataclass(said) or is_typeddict(said)):
            raise TypeError(f"{said!r} has no JSON form")
        return self._named(said.__name__.lstrip("_"), (said,))

    def _named(self, name: str, classes: Sequence[type]) -> Schema:
        if name not in self.definitions:
            self.definitions[name] = {}  # it may hold itself
            self.definitions[name] = self.object_of(classes)
        return {"$ref": f"#/$defs/{name}"}

    def object_of(self, classes: Sequence[type]) -> Schema:
        """An object with the keys of all classes, whole."""
        sentence = class_sentence(classes[0])
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for cls in classes:
            sentences = field_sentences(cls)
            for name, hint in get_type_hints(cls, include_extras=True).items():
                if is_dataclass(cls) and name not in {each.name for each in fields(cls)}:
                    continue
                properties[name] = self.of(hint)
                if name in sentences:
                    properties[name]["description"] = sentences[name]
                if cls not in self._optional and get_origin(hint) is not NotRequired:
                    required.append(name)
        said = {"description": sentence} if sentence else {}
        return {
            "type": "object",
            **said,
            "properties": properties,
            "required": list(dict.fromkeys(required)),
            "additionalProperties": True,
        }


def document_schema(name: str, title: str, said: Any, optional: frozenset[type] = frozenset()) -> Schema:
    """A whole schema. `said` is a type, or a tuple of alternative types."""
    maker = Maker(optional)
    if isinstance(said, tuple):
        body: Schema = {"anyOf": [maker.of(each) for each in said]}
    else:
        body = maker.of(said)
        reference = body.get("$ref")
        if reference is not None:  # the document itself is at the top
            body = maker.definitions.pop(reference.rpartition("/")[2])
    definitions = {"$defs": dict(sorted(maker.definitions.items()))} if maker.definitions else {}
    return {"$schema": DRAFT, "$id": f"{name}.json", "title": title, **body, **definitions}
