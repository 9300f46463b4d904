"""The examples of the specification: sound after the repair, refused by name before it."""

from __future__ import annotations

import pytest

from dray.api.codec import decode_document
from dray.api.kinds import parse_document_kind
from dray.lint import Severity
from tests.unit.examples.linted import EXAMPLES, convert, documents, findings, format_finding, manifests

SEEDS = EXAMPLES / "seeds"
UNFIXED = EXAMPLES / "seeds-unfixed"
VERSIONS = ("v1", "v1beta2", "v1beta1")

# Every finding of a file: rule, path, and words that name the fault.
NO_API_VERSION = ("not-an-object", "apiVersion", ["`apiVersion` is missing"])
ENDED = ("syntax", "", ["a document ended above", "`---`"])
STRAY_QUOTE = ("invalid", "spec.devices.constraints[0].requests[1]", ['gpu\\"', "name of a request"])
ATTRIBUTE_LIST = (
    "attribute-list",
    "spec.devices.constraints[0].matchAttribute",
    ["is a list", "one attribute"],
)
REFUSED = {
    "kep-3063-resource-class.yaml": [
        ("not-an-object", "kind", ["`kind` is missing", "`kind: ResourceClass`"])
    ],
    "kep-4816-first-available.yaml": [STRAY_QUOTE, ATTRIBUTE_LIST],
    "kep-4816-first-available-v1beta1.yaml": [STRAY_QUOTE, ATTRIBUTE_LIST],
    "kep-5075-class-selector.yaml": [NO_API_VERSION],
    "kep-5075-shared-nic-slice.yaml": [NO_API_VERSION, ENDED],
    "kep-5075-capacity-request.yaml": [NO_API_VERSION, ENDED],
    "kep-5075-claim-status.yaml": [NO_API_VERSION, ENDED],
    "kep-5075-distinct-interfaces.yaml": [NO_API_VERSION, ENDED],
    "kep-5491-typed-lists.yaml": [NO_API_VERSION],
    "kep-5491-aligned-claim.yaml": [
        ("required", "metadata.name", ["name"]),
        ("requests-outside-devices", "spec.requests", ["`requests` and `constraints`", "`spec.devices`"]),
    ],
}
ACCEPTED = "kep-3063-pod-inline-template.yaml"

# One repair undone at a time: file, what stands there now, what stood there, and what lint says to that.
UNDONE = [
    (
        "kep-4816-first-available.yaml",
        ('requests: ["nic", "gpu"]', 'requests: ["nic", gpu"]'),
        STRAY_QUOTE,
    ),
    (
        "kep-4816-first-available.yaml",
        ("matchAttribute: dra.k8s.io/pcieRoot", "matchAttribute:\n      - dra.k8s.io/pcieRoot"),
        ATTRIBUTE_LIST,
    ),
    (
        "kep-5075-shared-nic-slice.yaml",
        ("    allowMultipleAllocations: true\n", "    basic:\n      allowMultipleAllocations: true\n"),
        ("old-device-basic", "spec.devices[0].basic", ["`basic`", "v1beta1"]),
    ),
    (
        "kep-5075-shared-nic-slice.yaml",
        ("  nodeName: node-1\n", ""),
        ("required", "spec", ["exactly one of", "`nodeName`"]),
    ),
    (
        "kep-5075-claim-status.yaml",
        ("      - request: nic\n        driver:", "      - driver:"),
        ("invalid", "status.allocation.devices.results[0].request", ["name of a request"]),
    ),
    (
        "kep-5075-claim-status.yaml",
        ("          bandwidth: 5Gi\n  reservedFor", "          bandwidth: 5Gi\n ...\n  reservedFor"),
        ("syntax", "", []),
    ),
    (
        "kep-5075-distinct-interfaces.yaml",
        ("simple-cni.dra.networking.x-k8s.io/interfaceName", "interfaceName"),
        ("invalid", "spec.devices.constraints[0].distinctAttribute", ["interfaceName", "domain"]),
    ),
    (
        "kep-5491-typed-lists.yaml",
        ("listOfString:", "list-of-string:"),
        ("invalid", "spec.devices[0].attributes", ["list-of-string", "C identifier"]),
    ),
    (
        "kep-3063-resource-class.yaml",
        ("kind: ResourceClass\n", ""),
        ("not-an-object", "kind", ["`kind` is missing"]),
    ),
]


def _name(path):
    return path.name


@pytest.fixture(scope="module")
def found_in_seeds():
    return findings(SEEDS, complete=True)


@pytest.mark.parametrize("path", manifests("seeds"), ids=_name)
def test_a_repaired_example_is_valid_together_with_the_others(path, found_in_seeds):
    assert [f for f in found_in_seeds if f.source == str(path)] == []


def test_nothing_is_wrong_with_the_repaired_examples_together(found_in_seeds):
    assert not found_in_seeds


def test_every_kep_with_manifests_is_there():
    assert {path.name.split("-")[1] for path in manifests("seeds")} == {"3063", "4816", "5075", "5491"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", manifests("seeds"), ids=_name)
def test_an_example_converts_to_every_version_and_back_unchanged(path, version):
    text = path.read_text()
    there = convert(text, version)
    served = {v for _, v in (parse_document_kind(document) for document in documents(there))}
    assert served <= {version, "v1", "v1alpha1"}  # pods and classic objects have one version only
    written = {v for kind, v in map(parse_document_kind, documents(text)) if kind.group == "resource.k8s.io"}
    back = convert(there, written.pop() if written else version)
    assert documents(back) == documents(text)


@pytest.mark.parametrize("name", REFUSED)
def test_an_unrepaired_example_is_refused_by_name(name):
    found = findings(UNFIXED / name)
    assert [(f.rule, f.path) for f in found] == [(rule, path) for rule, path, _ in REFUSED[name]]
    assert {f.severity for f in found} == {Severity.ERROR}
    for finding, (_, _, words) in zip(found, REFUSED[name], strict=True):
        assert [word for word in words if word not in format_finding(finding)] == []


def test_the_table_is_complete():
    assert {path.name for path in manifests("seeds-unfixed")} == {*REFUSED, ACCEPTED}


@pytest.mark.parametrize(("name", "undo", "expected"), UNDONE, ids=lambda value: str(value)[:40])
def test_each_repair_is_needed(name, undo, expected, tmp_path):
    now, before = undo
    text = (SEEDS / name).read_text()
    assert text.count(now) == 1
    broken = tmp_path / name
    broken.write_text(text.replace(now, before))
    rule, path, words = expected
    errors = [f for f in findings(broken) if f.severity is Severity.ERROR]
    assert [(f.rule, f.path) for f in errors] == [(rule, path)]
    assert [word for word in words if word not in format_finding(errors[0])] == []


@pytest.mark.req("K3063-047")
def test_the_classic_class_is_accepted_once_it_has_a_kind():
    path = SEEDS / "kep-3063-resource-class.yaml"
    assert not findings(path)
    (document,) = documents(path.read_text())
    decoded = decode_document(document).object
    assert (decoded.metadata.name, decoded.driver_name) == ("acme-gpu", "gpu.acme.com")
    assert b"acme-gpu-init" in bytes(decoded.parameters)


@pytest.mark.req("K3063-049")
def test_the_classic_pod_is_accepted_as_written_with_a_hint_at_the_current_spelling():
    found = findings(UNFIXED / ACCEPTED, SEEDS / "kep-3063-resource-class.yaml", complete=True)
    assert [(f.severity, f.rule, f.path) for f in found] == [
        (Severity.NOTE, "old-inline-template", "spec.resourceClaims[0].template"),
        (Severity.NOTE, "old-container-claims", "spec.containers[0].resources.claims[0]"),
        (Severity.NOTE, "old-container-claims", "spec.containers[1].resources.claims[0]"),
    ]
    assert all(f.rewrite for f in found)
    today = convert((UNFIXED / ACCEPTED).read_text(), "v1")
    assert documents(today) == documents((SEEDS / ACCEPTED).read_text())


@pytest.mark.req("K5075-100")
def test_the_shared_card_is_accepted_with_its_fields_beside_its_name():
    path = SEEDS / "kep-5075-shared-nic-slice.yaml"
    assert not findings(path)
    (document,) = documents(path.read_text())
    (device,) = decode_document(document).object.spec.devices
    policy = device.capacity["bandwidth"].request_policy
    assert device.allow_multiple_allocations is True
    assert str(device.capacity["bandwidth"].value) == "10Gi"
    assert (str(policy.default), str(policy.valid_range.min), policy.valid_range.step) == ("1Mi", "1Mi", 8)


@pytest.mark.req("K5491-017")
@pytest.mark.parametrize("spelling", ["list", "plural"])
def test_lists_of_all_four_types_are_accepted_in_both_spellings(spelling, tmp_path):
    text = (SEEDS / "kep-5491-typed-lists.yaml").read_text()
    if spelling == "plural":
        for name in ("string", "int", "bool", "version"):
            text = text.replace(f"        list:\n          {name}: ", f"        {name}s: ")
    path = tmp_path / "lists.yaml"
    path.write_text(text)
    assert not findings(path)
    (document,) = documents(text)
    (device,) = decode_document(document).object.spec.devices
    assert {name: value.get_typed_values() for name, value in device.attributes.items()} == {
        "listOfString": ("string", ("pci0000:00", "pci0000:01")),
        "listOfInt": ("int", (0, 1, 2)),
        "listOfBool": ("bool", (True, False, True)),
        "listOfVersion": ("version", ("1.0.0", "1.0.1")),
    }
    assert documents(convert(text, "v1beta1"))[0] != document
    assert documents(convert(convert(text, "v1beta1"), "v1")) == [document]
