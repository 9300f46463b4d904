"""Strategic merge patch: a merge patch that merges lists by a key.

Theory of operation: maps are merged and `null` removes, as in a merge patch. A list with the strategy `merge`
is merged, too: items with the same key are merged, new ones are added, plain values are added once; other
lists are replaced. A patch may have directives: `$patch` on a map or list item (`replace`, `delete`,
`merge`), `$retainKeys` (only these keys remain), `$deleteFromPrimitiveList/FIELD` and
`$setElementOrder/FIELD`. Items that a patch names keep its order; those that only the object has stay before
the items they preceded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dray.api.kinds import Kind
from dray.server.patch.errors import build_inapplicable, build_malformed
from dray.server.patch.limits import check_depth
from dray.server.patch.schema.kind_structures import Structure, get_structure
from dray.server.patch.schema.path_elements import encode_json_text

Document = dict[str, Any]

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_VALUES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_KNOWN_DIRECTIVES: Final = ("replace", "delete", "merge")

_IdentifyItem = Callable[[Any], str | None]
"""Identifies an item among others, as text; None when the item has no identity."""


def apply(kind: Kind, document: Mapping[str, Any], patch: Any, *, shallow: bool = False) -> Document:
    """Apply a patch; raises `PatchError` when it does not fit.

    The depth of a patch that is known to be `shallow` is not checked.
    """
    if not isinstance(patch, dict):
        raise build_malformed("a strategic merge patch is a JSON object")
    if not shallow:
        check_depth(patch)
    return _merge_map(get_structure(kind), dict(document), patch)


def _merge_map(structure: Structure, original: Document, patch: Document) -> Document:
    match _read_directive(patch):
        case "replace":
            return _clean_value(_drop_name(patch, _DIRECTIVE))
        case "delete":
            return {}
    merged = _retain_keys(original, patch)
    plain: Document = {}
    orders: Document = {}
    for name, value in patch.items():
        if name in (_DIRECTIVE, _RETAIN):
            continue
        if name.startswith(_DELETE_VALUES):
            _delete_values(merged, name.removeprefix(_DELETE_VALUES), value)
        elif name.startswith(_ORDER):
            orders[name.removeprefix(_ORDER)] = value
        else:
            plain[name] = value
    for name, value in plain.items():
        _merge_field(structure.get_field(name), merged, name, value)
    for name, wanted in orders.items():
        _reorder_list(structure.get_field(name), merged, name, (original.get(name), plain.get(name), wanted))
    return merged


def _merge_field(structure: Structure, merged: Document, name: str, value: Any) -> None:
    there = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, dict) and isinstance(there, dict) and "replace" not in structure.strategy:
        merged[name] = _merge_map(structure, there, value)
    elif isinstance(value, list) and isinstance(there, list) and "merge" in structure.strategy:
        merged[name] = _merge_list(structure, there, value)
    else:
        merged[name] = _clean_addition(value)


def _merge_list(structure: Structure, original: list[Any], patch: list[Any]) -> list[Any]:
    if not any(isinstance(item, dict) for item in (*original, *patch)):
        return _merge_values(original, patch)
    key = structure.merge_key
    if not key:
        raise build_inapplicable("a list of objects without a merge key cannot be merged")
    identity = _identify_by_key(key)
    replaced = False
    items: dict[str, Any] = {}
    deleted: set[str] = set()
    for item in patch:
        directive = _read_directive(item) if isinstance(item, dict) else ""
        if directive == "replace":
            replaced = True
            if set(item) == {_DIRECTIVE}:
                continue
        mark = _get_identity(identity, item, key)
        if directive == "delete":
            deleted.add(mark)
        else:
            items[mark] = item
    if replaced:
        return [_clean_addition(_drop_name(item, _DIRECTIVE)) for item in items.values()]
    known = {_get_identity(identity, item, key): item for item in original}
    merged = {mark: item for mark, item in known.items() if mark not in deleted}
    for mark, item in items.items():
        merged[mark] = (
            _merge_map(structure.element, merged[mark], item) if mark in merged else _clean_addition(item)
        )
    return [merged[mark] for mark in _arrange_items(list(merged), list(items), list(known))]


def _merge_values(original: list[Any], patch: list[Any]) -> list[Any]:
    known = {_identify_by_value(item): item for item in original}
    items = {_identify_by_value(item): item for item in patch}
    merged = {**known, **items}
    return [merged[mark] for mark in _arrange_items(list(merged), list(items), list(known))]


def _reorder_list(structure: Structure, merged: Document, name: str, sources: tuple[Any, Any, Any]) -> None:
    """Bring a list into the order that a patch requests."""
    original, patched, wanted = sources
    if not isinstance(wanted, list) or not (patched is None or isinstance(patched, list)):
        raise build_malformed(f"`{_ORDER}{name}` is a list, and so is the field it orders")
    there = merged.get(name)
    if not isinstance(there, list):
        return
    key = structure.merge_key
    identity = _identify_by_key(key) if key else _identify_by_value
    order = [_get_identity(identity, item, key) for item in wanted]
    named = [
        _get_identity(identity, item, key)
        for item in patched or ()
        if not (isinstance(item, dict) and _DIRECTIVE in item)
    ]
    if [mark for mark in order if mark in set(named)] != named:
        raise build_malformed(f"the order in patch list `{name}` doesn't match `{_ORDER}{name}`")
    items = {_get_identity(identity, item, key): item for item in there}
    before = [_get_identity(identity, item, key) for item in original] if isinstance(original, list) else []
    merged[name] = [items[mark] for mark in _arrange_items(list(items), order, before)]


def _get_identity(identity: _IdentifyItem, item: Any, key: str) -> str:
    mark = identity(item)
    if mark is None:
        raise build_inapplicable(f"an item of a list does not contain its merge key `{key}`")
    return mark


def _read_directive(patch: Document) -> str:
    directive = patch.get(_DIRECTIVE, "")
    if directive and directive not in _KNOWN_DIRECTIVES:
        raise build_malformed(
            f"unknown patch type `{directive}` in `{_DIRECTIVE}`; expected one of {_KNOWN_DIRECTIVES}"
        )
    return str(directive)


def _retain_keys(original: Document, patch: Document) -> Document:
    """Return the original without the keys that a patch does not retain."""
    if _RETAIN not in patch:
        return dict(original)
    keys = patch[_RETAIN]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise build_malformed(f"`{_RETAIN}` is a list of names")
    unnamed = [
        name for name, value in patch.items() if name[0:1] != "$" and value is not None and name not in keys
    ]
    if unnamed:
        raise build_malformed(f"`{_RETAIN}` does not name `{unnamed[0]}`, which the patch sets")
    return {name: value for name, value in original.items() if name in keys}


def _delete_values(merged: Document, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise build_malformed(f"`{_DELETE_VALUES}{name}` is a list of values")
    there = merged.get(name)
    if isinstance(there, list):
        gone = {_identify_by_value(value) for value in values}
        merged[name] = [value for value in there if _identify_by_value(value) not in gone]


def _drop_name(item: Document, name: str) -> Document:
    return {key: value for key, value in item.items() if key != name}


def _clean_addition(value: Any) -> Any:
    """Clean what a patch adds where nothing was: directives and `null`s have no meaning there."""
    if isinstance(value, list):
        kept = [item for item in value if not (isinstance(item, dict) and _read_directive(item) == "delete")]
        return [_clean_addition(item) for item in kept if item != {_DIRECTIVE: "replace"}]
    return _clean_value(value) if isinstance(value, dict) else value


def _clean_value(value: Document) -> Document:
    return {
        name: _clean_addition(item)
        for name, item in value.items()
        if item is not None and not _is_directive(name)
    }


def _is_directive(name: str) -> bool:
    return name in (_DIRECTIVE, _RETAIN) or name.startswith((_DELETE_VALUES, _ORDER))


def _identify_by_value(item: Any) -> str:
    """Identify a plain value by itself."""
    return encode_json_text(item)


def _identify_by_key(key: str) -> _IdentifyItem:
    """Identify an object by one of its fields."""

    def identify_item(item: Any) -> str | None:
        if not isinstance(item, dict) or item.get(key) is None:
            return None
        return encode_json_text(item[key])

    return identify_item


def _arrange_items(items: Sequence[str], patched: Sequence[str], original: Sequence[str]) -> list[str]:
    """Arrange all items, given those a patch names and the order of the object.

    The items of the patch keep its order, and the others that of the object. An item that only the object has
    stays before an item of the patch that it preceded; otherwise the patch goes first.
    """
    there = set(items)
    chosen = [mark for mark in dict.fromkeys(patched) if mark in there]
    places = {mark: place for place, mark in enumerate(original)}
    named = set(chosen)
    others = sorted((mark for mark in items if mark not in named), key=lambda mark: places.get(mark, 0))
    result: list[str] = []
    waiting = 0
    for mark in chosen:
        place = places.get(mark)
        while waiting < len(others) and place is not None and places.get(others[waiting], place) < place:
            result.append(others[waiting])
            waiting += 1
        result.append(mark)
    return result + others[waiting:]
