"""A plugin's file as its program reads it: Go's JSON ignores the case of keys, and null counts as no value.

Files that Go programs wrote need that too: without a tag, a field's key has Go's case (`IsRdma`).

Source: encoding/json (Unmarshal), sigs.k8s.io/yaml.
"""

import msgspec.inspect as mi

from nodeplug.config.document import options_of
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Sequence
from nodeplug.convert.wrapping import with_text

_NOTHING = ("", "~", "null", "Null", "NULL")


def decoded_by_go(root: Node, schema: type) -> Node:
    """Return a file's tree with keys spelt as in `schema`, and without keys that have no value."""
    return _read(root, mi.type_info(schema))


def _read(node: Node, wanted: mi.Type) -> Node:
    options = list(options_of(wanted))
    if isinstance(node, Sequence):
        items = next((x.item_type for x in options if isinstance(x, mi.VarTupleType)), mi.AnyType())
        return Sequence(tuple(_read(x, items) for x in node.items), node.line, node.column)
    if not isinstance(node, Keys):
        return node
    struct = next((x for x in options if isinstance(x, mi.StructType)), None)
    fields = {} if struct is None else {x.encode_name: x.type for x in struct.fields}
    values = next((x.value_type for x in options if isinstance(x, mi.DictType)), mi.AnyType())
    folded = {name.lower(): name for name in fields}
    entries = [
        (with_text(key, name), _read(value, fields.get(name, values)))
        for key, value in node.entries
        if not _is_nothing(value)
        for name in (key.text if key.text in fields else folded.get(key.text.lower(), key.text),)
    ]
    return Keys(tuple(entries), node.line, node.column)


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and node.text in _NOTHING
