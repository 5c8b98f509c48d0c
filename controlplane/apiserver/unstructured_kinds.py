"""Built-in kinds without Python structs: checked by upstream's types, metadata rules and rules of their own."""

from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.kinds import Column, Kind, Plain, ScalePaths, Served
from controlplane.apiserver.message_schemas import kind_schema
from controlplane.apiserver.unstructured_rules import Advance, Check, Part, UnstructuredRules, Warn


def unstructured_kind(
    kind: str,
    plural: str,
    description: str,
    shown: tuple[Column, ...],
    *,
    group: str = "",
    version: str = "v1",
    scale: ScalePaths | None = None,
    deprecation: str = "",
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    status: bool = False,
    counts_generations: bool = False,
    deletes: bool = False,
    has_status_at_first: bool = False,
    fill: Callable[[Plain], Plain] = lambda obj: obj,
    advance: Advance | None = None,
    fields: Mapping[str, Callable[[Plain], Any]] | None = None,
    hides_name: bool = False,
    check: Check | None = None,
    warn: Warn | None = None,
    name_rule: Callable[[str], list[str]] | None = None,
    kept: frozenset[str] = frozenset(),
    creates_on_update: bool = False,
    must_be_current: bool = False,
    orphans: bool = False,
    parts: Mapping[str, Part] | None = None,
    drop: Callable[[Plain], Plain] | None = None,
    status_part: Part | None = None,
    put_back: Callable[[Plain, Plain], None] | None = None,
    hashed_as: str = "",
) -> Kind:
    """Return a kind of one version. `Kind` and `UnstructuredRules` describe members.

    `deletes`: a delete returns the object.
    """
    schema = kind_schema(f"{group}/{version}" if group else version, kind, description, kept)
    rules = UnstructuredRules(
        group,
        kind,
        version,
        {version: schema},
        namespaced=namespaced,
        status=status,
        counts_generations=counts_generations,
        has_status_at_first=has_status_at_first,
        fill=fill,
        advance=advance,
        check=check,
        warn=warn,
        name_rule=name_rule,
        kept=kept,
        parts=parts,
        drop=drop,
        status_part=status_part,
        put_back=put_back,
    )
    return Kind(
        group=group,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        versions=(Served(version, schema, deprecation, must_be_current=must_be_current, scale=scale),),
        storage=version,
        rules=rules,
        short_names=short,
        categories=categories,
        status=status,
        other_parts=tuple(parts or ()),
        columns=shown,
        fields=fields or {},
        counts_generations=counts_generations,
        delete_returns_object=deletes,
        hides_name=hides_name,
        creates_on_update=creates_on_update,
        orphans=orphans,
        hashed_as=hashed_as,
    )
