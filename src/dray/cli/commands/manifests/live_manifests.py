"""Objects of a running cluster as manifests, for `dray lint --live`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dray.cli.input.server_connection import ServerTarget, connect_to_server, run_to_completion
from dray.cli.output.text import print_message
from dray.gates import GateSet
from dray.lint import InspectionResult, LintFinding, ObjectFacts, inspect_document
from dray.lint.findings import THESE_MANIFESTS
from dray.manifests import ManifestSource, read_documents, to_yaml

IN_CLUSTER = "in the cluster"


@dataclass(frozen=True, slots=True)
class LiveManifests:
    """The objects of a cluster as YAML by their place in it, as `kubectl get -o yaml` shows them."""

    texts: Mapping[str, str] = field(default_factory=dict)
    is_live: bool = False
    has_gaps: bool = False
    """Whether some kind may not be read, so that a missing object may exist."""

    def inspect(self, gates: GateSet, now: str) -> InspectionResult:
        """Check every object on its own."""
        findings: list[LintFinding] = []
        facts: list[ObjectFacts] = []
        objects = 0
        for name, text in self.texts.items():
            for document in read_documents(ManifestSource(name, text)):
                inspected = inspect_document(document, gates, now=now)
                findings += inspected.findings
                facts += inspected.facts
                objects += inspected.objects
        return InspectionResult(tuple(findings), tuple(facts), objects)

    def filter_facts(
        self, facts: Iterable[ObjectFacts], in_files: Sequence[ObjectFacts]
    ) -> list[ObjectFacts]:
        """Filter out the objects that files replace."""
        replaced = {(one.group, one.kind, one.namespace, one.name) for one in in_files}
        return [one for one in facts if (one.group, one.kind, one.namespace, one.name) not in replaced]

    def is_complete(self, given: bool, has_files: bool) -> bool:
        """Whether an object that is not there does not exist: files may be followed by others."""
        return given or (self.is_live and not has_files and not self.has_gaps)

    def describe_place(self, has_files: bool) -> str:
        """Name what is searched for objects that others refer to."""
        if not self.is_live:
            return THESE_MANIFESTS
        return f"{THESE_MANIFESTS} or {IN_CLUSTER}" if has_files else IN_CLUSTER


NO_LIVE_MANIFESTS = LiveManifests()


def read_live_manifests(server: ServerTarget, namespace: str | None) -> LiveManifests:
    """Read the objects around devices from a server, and say what could not be read."""
    from dray.cli.input.live_cluster import check_server_named, get_context_namespace
    from dray.cluster.live.documents import LiveDocuments, read_device_documents

    check_server_named(server)
    wanted = namespace or get_context_namespace(server)

    async def read() -> LiveDocuments:
        async with connect_to_server(server.kubeconfig, server.context) as (client, _):
            return await read_device_documents(client, [wanted])

    found = run_to_completion(read())
    for remark in found.remarks:
        print_message(remark)
    texts = {
        f"live:{each.name}": to_yaml([each.document])
        for each in found.documents
        if namespace is None or each.document["metadata"].get("namespace", namespace) == namespace
    }
    return LiveManifests(texts, is_live=True, has_gaps=bool(found.gaps))
