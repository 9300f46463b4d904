"""The notation of allocator cases: lines of text for devices, requests and pools, and the objects they mean.

A device is a line: its name, then properties.

    gpu-0 numa=0 model=a100 ready=true firmware=v1.2.3 roots=[a,b] memory:40Gi shared draws(board/slots:1)

`name=value` is an attribute: a whole number, `true` or `false`, `v` and a version, else a string (`'1'` with
quotes is one, too). `[a,b]` is a list as KEP-5491 writes it (`list: {string: …}`), `(a,b)` one as Kubernetes
does (`strings: …`). `name:amount` is a capacity, with its policy in brackets: `memory:40Gi(default=1Gi,
min=1Gi,max=8Gi,step=1Gi)` or `(default=1,values=1|2|4)`. `shared` and `dedicated` say whether it may be
allocated several times, `draws(set/counter:amount)` what it takes of shared counters.

A request is a line: a class, then properties, and CEL to the end.

    gpu x2 memory:5Gi where device.attributes["gpu.example.com"].numa == 0

`x2` is a count, `all` every device, `admin` admin access, `name:amount` a capacity that is asked for. In CEL
`its.numa` is short for that attribute as above; everything else is CEL as it is.

Every object may be written in full instead, as a map in any version of the API. Whatever is written, what
comes out went through the codec and the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.api.codec import decode_document
from dray.api.strategies.defaults import apply_defaults

DRIVER = "gpu.example.com"
NAMESPACE = "ml"
NOW = "2026-01-01T00:00:00Z"

Document = dict[str, Any]

_WHOLE = re.compile(r"-?\d+")
_VERSION = re.compile(r"v(\d+\.\d+\.\d+.*)")
_ATTRIBUTE = re.compile(r"([\w./-]+)=(.+)")
_CAPACITY = re.compile(r"([\w./-]+):([^()]+)(?:\((.*)\))?")
_DRAWS = re.compile(r"draws\((.*)\)")
_PLURALS = {"int": "ints", "bool": "bools", "string": "strings", "version": "versions"}
_POLICY = ("default", "min", "max", "step", "values")
_RULE = re.compile(r"(same|different) (\S+)(?: of (.+))?")
_ITS = re.compile(r"\bits\.")
_KINDS = {"same": "matchAttribute", "different": "distinctAttribute"}


class CaseError(Exception):
    """A case that says something nobody understands."""


def made(document: Document) -> Any:
    """The object that a document in any version stands for, with defaults filled in."""
    decoded = decode_document(document)
    if decoded.unknown_fields:
        raise CaseError(f"unknown fields: {decoded.unknown_fields}")
    return apply_defaults(decoded.object, now=NOW)


def _document(kind: str, name: str, spec: Document) -> Document:
    meta = {"name": name} | ({"namespace": NAMESPACE} if kind == "ResourceClaim" else {})
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def listed(said: Any) -> list[Any]:
    """A list, or the one thing that stands for it."""
    return said if isinstance(said, list) else [said]


def only(said: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse keys that mean nothing: a misspelt expectation must not pass silently."""
    unknown = said.keys() - set(known)
    if unknown:
        raise CaseError(f"{where}: unknown {sorted(map(str, unknown))}; known are {sorted(known)}")


# --- devices ---


def lines_of(said: str | Sequence[Any]) -> list[Any]:
    """Lines, written as a block of text, as a list, or one after the other with `;` between them."""
    return re.split(r"\n|;", said.strip()) if isinstance(said, str) else list(said)


def device(said: str | Document) -> Document:
    """A device, from a line or in full."""
    if isinstance(said, dict):
        return said
    name, *words = said.split()
    found: Document = {"name": name}
    for word in words:
        _add_word(found, word)
    return found


def _add_word(found: Document, word: str) -> None:
    if word in ("shared", "dedicated"):
        found["allowMultipleAllocations"] = word == "shared"
    elif drawn := _DRAWS.fullmatch(word):
        for part in drawn[1].split(","):
            group, _, amount = part.partition("/")
            counters = {n: {"value": a} for n, a in amounts(amount).items()}
            found.setdefault("consumesCounters", []).append({"counterSet": group, "counters": counters})
    elif attribute := _ATTRIBUTE.fullmatch(word):
        found.setdefault("attributes", {})[attribute[1]] = _attribute(attribute[2])
    elif capacity := _CAPACITY.fullmatch(word):
        held: Document = {"value": capacity[2]}
        if capacity[3] is not None:
            held["requestPolicy"] = _policy(capacity[3])
        found.setdefault("capacity", {})[capacity[1]] = held
    else:
        raise CaseError(f"a device does not know the word `{word}`")


def _attribute(text: str) -> Document:
    if text[0] not in "[(":
        kind, value = _scalar(text)
        return {kind: value}
    typed = [_scalar(item) for item in text[1:-1].split(",") if item]
    kinds = {kind for kind, _ in typed}
    if len(kinds) != 1:
        raise CaseError(f"a list holds values of one type, not {sorted(kinds)}: {text}")
    kind, values = kinds.pop(), [value for _, value in typed]
    return {"list": {kind: values}} if text[0] == "[" else {_PLURALS[kind]: values}


def _scalar(text: str) -> tuple[str, Any]:
    if _WHOLE.fullmatch(text):
        return "int", int(text)
    if text in ("true", "false"):
        return "bool", text == "true"
    version = _VERSION.fullmatch(text)
    return ("version", version[1]) if version else ("string", text.strip("'"))


def _policy(text: str) -> Document:
    said = dict(part.split("=") for part in text.split(",") if part)
    only(said, _POLICY, f"policy ({text})")
    found: Document = {"default": said["default"]} if "default" in said else {}
    if "values" in said:
        found["validValues"] = said.pop("values").split("|")
    limits = {name: said[name] for name in ("min", "max", "step") if name in said}
    return found | ({"validRange": limits} if limits else {})


def amounts(text: str) -> dict[str, str]:
    """`memory:40Gi slots:2` by name."""
    return dict(part.split(":") for part in text.split())


# --- pools ---

_POOL = ("at", "generation", "count", "priority", "counters", "devices", "slices")
_SLICE = ("devices", "priority", "generation", "pool_priority", "at")


def slices(key: str, said: Any, nodes: Sequence[str]) -> list[Document]:
    """The slices of the pool `driver/pool`: its devices in one slice, or slice by slice, and its counters."""
    driver, _, pool = key.partition("/")
    whole: Document = said if isinstance(said, dict) else {"devices": said}
    only(whole, _POOL, f"pool {key}")
    # Devices of a slice that says nothing else are at the node the pool is named after, or at the only node.
    where = {"at": pool if pool in nodes else nodes[0]} if pool in nodes or len(nodes) == 1 else {}
    parts: Document = whole.get("slices") or {f"{driver}-{pool}": {"devices": whole.get("devices", [])}}
    parts = {name: each if isinstance(each, dict) else {"devices": each} for name, each in parts.items()}
    if "counters" in whole:
        parts = {f"{driver}-{pool}-counters": {"counters": whole["counters"]}, **parts}
    inherited = {name: whole[name] for name in ("at", "generation", "priority", "count") if name in whole}
    newest = [each.get("generation", inherited.get("generation", 1)) for each in parts.values()]
    inherited.setdefault("count", newest.count(max(newest)))
    return [_slice(driver, pool, name, (where | inherited, each)) for name, each in parts.items()]


def _slice(driver: str, pool: str, name: str, said: tuple[Document, Document]) -> Document:
    whole, each = said
    only(each, (*_SLICE, "counters"), f"slice {name}")
    generation = each.get("generation", whole.get("generation", 1))
    about: Document = {"name": pool, "generation": generation, "resourceSliceCount": whole["count"]}
    priority = each.get("pool_priority", whole.get("priority"))
    if priority is not None:
        about["priority"] = priority
    spec: Document = {"driver": driver, "pool": about, **_place(each["at"] if "at" in each else whole["at"])}
    if "priority" in each:
        spec["priority"] = each["priority"]
    if "counters" in each:
        spec["sharedCounters"] = [
            {"name": group, "counters": {n: {"value": a} for n, a in amounts(said).items()}}
            for group, said in each["counters"].items()
        ]
    else:
        spec["devices"] = [device(line) for line in lines_of(each["devices"])]
    return _document("ResourceSlice", name, spec)


def _place(at: str | dict[str, str]) -> Document:
    if isinstance(at, str):
        return {"allNodes": True} if at == "everywhere" else {"nodeName": at}
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in at.items()]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}


# --- classes and claims ---


def device_class(name: str, said: Any) -> Document:
    """A class: a selector, several, nothing at all, or `where` and `config`."""
    whole: Document = said if isinstance(said, dict) else {"where": said or []}
    if "spec" in whole:
        return _document("DeviceClass", name, whole["spec"])
    only(whole, ("where", "config"), f"class {name}")
    spec: Document = {"selectors": _selectors([whole.get("where")])}
    spec["config"] = [{"opaque": _opaque(line)} for line in whole.get("config", ())]
    return _document("DeviceClass", name, {key: value for key, value in spec.items() if value})


def claim(name: str, said: Any) -> Document:
    """A claim: a want and its rules on a line, requests by name, `requests` with more, or in full."""
    if isinstance(said, str):
        alternative, *rules = re.split(r", (?=same |different )", said)
        return claim(name, {"requests": {alternative.split()[0]: alternative}, "rules": rules})
    if "apiVersion" in said:
        return {**said, "metadata": {"namespace": NAMESPACE, "name": name}}
    if "spec" in said:
        return _document("ResourceClaim", name, said["spec"])
    whole = said if "requests" in said else {"requests": said}
    only(whole, ("requests", "rules", "config"), f"claim {name}")
    devices: Document = {"requests": [_request(*entry) for entry in whole["requests"].items()]}
    if whole.get("rules"):
        devices["constraints"] = [_rule(line) for line in whole["rules"]]
    if whole.get("config"):
        devices["config"] = [_config(line) for line in whole["config"]]
    return _document("ResourceClaim", name, {"devices": devices})


def _request(name: str, said: Any) -> Document:
    if isinstance(said, str):
        return {"name": name, "exactly": _want(said)}
    subs = [
        {"name": sub, **(_want(alternative) if isinstance(alternative, str) else alternative)}
        for sub, alternative in said.items()
    ]
    return {"name": name, "firstAvailable": subs}


def _want(line: str) -> Document:
    words, *expressions = line.split(" where ")
    class_name, *rest = words.split()
    found: Document = {"deviceClassName": class_name}
    for word in rest:
        if re.fullmatch(r"x\d+", word):
            found["count"] = int(word[1:])
        elif word == "all":
            found["allocationMode"] = "All"
        elif word == "admin":
            found["adminAccess"] = True
        elif asked := _CAPACITY.fullmatch(word):
            found.setdefault("capacity", {"requests": {}})["requests"][asked[1]] = asked[2]
        else:
            raise CaseError(f"a want does not know the word `{word}`")
    return found | ({"selectors": _selectors(expressions)} if expressions else {})


def _selectors(said: Iterable[Any]) -> list[Document]:
    flat = [text for part in said for text in ([part] if isinstance(part, str) else part or [])]
    its = f'device.attributes["{DRIVER}"].'
    return [{"cel": {"expression": _ITS.sub(its, text.strip())}} for text in flat]


def _rule(line: str) -> Document:
    said = _RULE.fullmatch(line)
    if said is None:
        raise CaseError(f"a rule is `same NAME` or `different NAME`, perhaps `of A and B`: {line}")
    attribute = said[2] if "/" in said[2] else f"{DRIVER}/{said[2]}"
    return {_KINDS[said[1]]: attribute} | ({"requests": said[3].split(" and ")} if said[3] else {})


def _config(line: str) -> Document:
    words, _, requests = line.partition(" of ")
    return {"opaque": _opaque(words)} | ({"requests": requests.split(" and ")} if requests else {})


def _opaque(words: str) -> Document:
    return {"driver": DRIVER, "parameters": dict(word.split("=") for word in words.split())}


def holding(name: str, results: Sequence[Document]) -> Document:
    """A claim of somebody else that was allocated before."""
    asks = {"deviceClassName": "any", "count": len(results)}
    namespace, _, short = name.rpartition("/")
    found = _document("ResourceClaim", short, {"devices": {"requests": [{"name": "x", "exactly": asks}]}})
    found["metadata"]["namespace"] = namespace or NAMESPACE
    found["status"] = {"allocation": {"devices": {"results": list(results)}}}
    return found
