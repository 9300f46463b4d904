"""`python -m tests.kubernetes.reduce_recording FROM TO`: some requests of each sort, without what is private.

A sort is who wrote what, how: component, method, kind, subresource, content type. Of each sort the shortest
and the longest accepted request stay. Identifiers of the machine are replaced by others of the same length,
so that lengths inside of messages stay true.
"""

from __future__ import annotations

import base64
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.kubernetes.recording_proxy import find_object_path

Document = dict[str, Any]
_MACHINE_FILES = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/proc/sys/kernel/random/boot_id")
_SECRETS = re.compile(rb"PRIVATE KEY|Bearer |eyJhbGciOi")
_PRIVATE_FIELDS = ("body", "answer")


def reduce_recording(lines: Iterable[Document]) -> Iterator[Document]:
    sorts: dict[tuple[str, ...], list[Document]] = {}
    pods: dict[str, Document] = {}
    for line in lines:
        before = line["before"] or {}
        if before.get("kind") == "Pod":
            pods[before["metadata"]["uid"]] = before
        if 200 <= line["code"] < 300 and _is_repeatable(line):
            sorts.setdefault(build_sort(line), []).append(line)
    for _, found in sorted(sorts.items()):
        found.sort(key=lambda line: len(line["body"]))
        for line in found if len(found) < 2 else (found[0], found[-1]):
            if find_object_path(line["path"]) is None and line["method"] == "DELETE":
                line = {**line, "answer": ""}  # what was in the namespace then
            yield _add_pod(line, pods) if line["path"].endswith("/token") else line


def _is_repeatable(line: Document) -> bool:
    """Whether the object was read before in the version that the request names, not changed in between.

    The accounts of namespaces that every server has are there already. Of the deletions of collections, which
    differ only in the kind, those of pods and claims are enough.
    """
    kind = line["path"].rpartition("/")[2]
    if kind == "serviceaccounts" and "/namespaces/work/" not in line["path"]:
        return False
    if line["method"] == "DELETE" and find_object_path(line["path"]) is None:
        return kind in ("pods", "resourceclaims")
    if line["method"] != "PUT" or line["before"] is None:
        return True
    version = line["before"]["metadata"]["resourceVersion"]
    body = base64.b64decode(line["body"])
    return version.encode() in body


def build_sort(line: Document) -> tuple[str, ...]:
    """Component, method, kind with subresource, and content type."""
    object_path = find_object_path(line["path"])
    kind = line["path"] if object_path is None else object_path.rpartition("/")[0]
    part = "" if object_path is None else line["path"].removeprefix(object_path)
    kind = re.sub(r"/namespaces/[^/]+/", "/", kind)
    return (line["agent"].split("/")[0], line["method"], kind + part, line["type"].rpartition("/")[2])


def _add_pod(line: Document, pods: dict[str, Document]) -> Document:
    """A token is for a pod, which has to be there; the answer has the token."""
    body = base64.b64decode(line["body"])
    bound = [pod for uid, pod in pods.items() if uid.encode() in body]
    return {**line, "answer": "", "beside": bound}


def scrub(line: Document, machine: list[bytes]) -> Document:
    """Replace what identifies this machine, also inside of encoded bytes."""
    text = json.dumps({name: value for name, value in line.items() if name not in _PRIVATE_FIELDS})
    made = json.loads(_scrub_bytes(text.encode(), machine))
    for name in _PRIVATE_FIELDS:
        content = _scrub_bytes(base64.b64decode(line[name]), machine)
        assert not _SECRETS.search(content), line["path"]
        made[name] = base64.b64encode(content).decode()
    return dict(made)


def _scrub_bytes(content: bytes, machine: list[bytes]) -> bytes:
    for word in machine:
        content = content.replace(word, re.sub(rb"[0-9a-zA-Z]", b"0", word))
    return content


def list_machine_words() -> list[bytes]:
    words = [Path(file).read_bytes().strip() for file in _MACHINE_FILES if Path(file).exists()]
    words.append(platform.release().encode())
    return [word for each in words if each for word in (each, each.replace(b"-", b""), each.lower())]


def main(arguments: list[str]) -> int:
    source, target = map(Path, arguments)
    machine = list_machine_words()
    lines = map(json.loads, source.read_text("utf-8").splitlines())
    kept = [scrub(line, machine) for line in reduce_recording(lines)]
    text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in kept)
    target.write_text(text, "utf-8")
    print(f"{len(kept)} requests, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
