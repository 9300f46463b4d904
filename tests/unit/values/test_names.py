"""Name rules: valid names, and the faults of invalid ones with text and order."""

from __future__ import annotations

import pytest

from dray.values import names
from dray.values.names import NameFault

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
C_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)
KEY_NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NORMAL_UUID = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
    "hexadecimal characters"
)
FULLY = "a fully qualified name must be a domain and a name separated by a slash"
UUID = "aaaaaaaa-0123-4567-89ab-aaaaaaaaaaaa"

GOOD = [
    (names.check_dns_label, ["a", "0", "gpu-0", "a--b", "x" * 63]),
    (names.check_dns_subdomain, ["a", "a.b", "gpu.example.com", "a-b.c-d", "0.1", "x" * 253]),
    (names.check_c_identifier, ["a", "_", "a_1", "A", "x" * 1000]),
    (names.check_qualified_name, ["a", "A.b_c-d", "x.io/a", f"{'p' * 253}/{'n' * 63}", "0"]),
    (names.check_label_value, ["", "a", "A_b.c-d", "x" * 63, "0"]),
    (names.check_driver_name, ["gpu.example.com", "GPU.Example.com", "x" * 63]),
    (names.check_pool_name, ["node-1", "a/b", "a.b/c.d/e", "x" * 253, "/".join("x" * 127)]),
    (
        names.check_attribute_name,
        ["model", "_x1", "gpu.example.com/model", f"{'d' * 63}/{'i' * 32}", "i" * 32],
    ),
    (names.check_fully_qualified_name, ["gpu.example.com/model", "d/i"]),
    (names.check_uid, [UUID, "00000000-0000-0000-0000-000000000000"]),
]


@pytest.mark.parametrize(
    ("rule", "name"),
    [(rule, name) for rule, good in GOOD for name in good],
    ids=lambda x: getattr(x, "__name__", str(x))[:30],
)
def test_good_names_have_no_faults(rule, name):
    assert rule(name) == ()


# rule, name, faults as (text, the part an error quotes, limit)
BAD = [
    (names.check_dns_label, "", [(LABEL, "", None)]),
    (names.check_dns_label, "!@#$%^", [(LABEL, "!@#$%^", None)]),
    (names.check_dns_label, "GPU", [(LABEL, "GPU", None)]),
    (names.check_dns_label, "-a", [(LABEL, "-a", None)]),
    (names.check_dns_label, "a-", [(LABEL, "a-", None)]),
    (names.check_dns_label, "a\n", [(LABEL, "a\n", None)]),
    (names.check_dns_label, "а", [(LABEL, "а", None)]),
    (names.check_dns_label, "a.b", [("must not contain dots", "a.b", None)]),
    (names.check_dns_label, "x" * 64, [("must be no more than 63 bytes", "x" * 64, None)]),
    (
        names.check_dns_label,
        "X" * 64,
        [("must be no more than 63 bytes", "X" * 64, None), (LABEL, "X" * 64, None)],
    ),
    (names.check_dns_subdomain, "", [(SUBDOMAIN, "", None)]),
    (names.check_dns_subdomain, "a..b", [(SUBDOMAIN, "a..b", None)]),
    (names.check_dns_subdomain, "a.b.", [(SUBDOMAIN, "a.b.", None)]),
    (names.check_dns_subdomain, "x" * 254, [("must be no more than 253 bytes", "x" * 254, None)]),
    (
        names.check_dns_subdomain,
        "é" * 127,
        [("must be no more than 253 bytes", "é" * 127, None), (SUBDOMAIN, "é" * 127, None)],
    ),
    (names.check_c_identifier, "1a", [(C_IDENTIFIER, "1a", None)]),
    (names.check_c_identifier, "a-b", [(C_IDENTIFIER, "a-b", None)]),
    (
        names.check_qualified_name,
        "",
        [("name part must be non-empty", "", None), (f"name part {KEY_NAME}", "", None)],
    ),
    (names.check_qualified_name, "!@#$%^", [(f"name part {KEY_NAME}", "!@#$%^", None)]),
    (names.check_qualified_name, "condition2!", [(f"name part {KEY_NAME}", "condition2!", None)]),
    (names.check_qualified_name, "/a", [("prefix part must be non-empty", "/a", None)]),
    (names.check_qualified_name, "A/a", [(f"prefix part {SUBDOMAIN}", "A/a", None)]),
    (
        names.check_qualified_name,
        "a/",
        [("name part must be non-empty", "a/", None), (f"name part {KEY_NAME}", "a/", None)],
    ),
    (names.check_qualified_name, "n" * 64, [("name part must be no more than 63 bytes", "n" * 64, None)]),
    (
        names.check_qualified_name,
        f"{'p' * 254}/n",
        [("prefix part must be no more than 253 bytes", f"{'p' * 254}/n", None)],
    ),
    (
        names.check_qualified_name,
        "a/b/c",
        [
            (
                f"a valid label key {KEY_NAME} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')",
                "a/b/c",
                None,
            )
        ],
    ),
    (names.check_label_value, "spaces not allowed", [(LABEL_VALUE, "spaces not allowed", None)]),
    (names.check_label_value, "-1", [(LABEL_VALUE, "-1", None)]),
    (names.check_label_value, "x" * 64, [("must be no more than 63 bytes", "x" * 64, None)]),
    (names.check_driver_name, "!@#$%^", [(SUBDOMAIN, "!@#$%^", None)]),
    (names.check_driver_name, "GPU_1", [(SUBDOMAIN, "GPU_1", None)]),
    (names.check_driver_name, "\u212a.io", [(SUBDOMAIN, "\u212a.io", None)]),
    (names.check_driver_name, "x" * 64, [("may not be more than 63 bytes", "x" * 64, 63)]),
    (names.check_pool_name, "!@#$%^/!@#$%^", [(SUBDOMAIN, "!@#$%^", None), (SUBDOMAIN, "!@#$%^", None)]),
    (names.check_pool_name, "a//b", [(SUBDOMAIN, "", None)]),
    (names.check_pool_name, "/a/", [(SUBDOMAIN, "", None), (SUBDOMAIN, "", None)]),
    (
        names.check_pool_name,
        "/".join("x" * 127) + "y",
        [("may not be more than 253 bytes", "/".join("x" * 127) + "y", 253)],
    ),
    (names.check_attribute_name, "", [(C_IDENTIFIER, "", None)]),
    (names.check_attribute_name, "!@#$%^", [(C_IDENTIFIER, "!@#$%^", None)]),
    (
        names.check_attribute_name,
        "." * 33,
        [("may not be more than 32 bytes", "." * 33, 32), (C_IDENTIFIER, "." * 33, None)],
    ),
    (
        names.check_attribute_name,
        f"{'_' * 64}/y",
        [("may not be more than 63 bytes", "_" * 64, 63), (SUBDOMAIN, "_" * 64, None)],
    ),
    (
        names.check_attribute_name,
        f"{'x' * 64}/{'y' * 33}",
        [("may not be more than 63 bytes", "x" * 64, 63), ("may not be more than 32 bytes", "y" * 33, 32)],
    ),
    (
        names.check_attribute_name,
        "/",
        [("the domain must not be empty", "", None), ("the name must not be empty", "", None)],
    ),
    (names.check_attribute_name, "/a", [("the domain must not be empty", "", None)]),
    (names.check_attribute_name, "x.io/", [("the name must not be empty", "", None)]),
    (names.check_attribute_name, "x.io/a-b", [(C_IDENTIFIER, "a-b", None)]),
    (
        names.check_attribute_name,
        "x.io/a/b",
        [("must be a name, or a domain and a name separated by a single slash", "x.io/a/b", None)],
    ),
    (
        names.check_fully_qualified_name,
        "missing-domain",
        [(C_IDENTIFIER, "missing-domain", None), (FULLY, "missing-domain", None)],
    ),
    (names.check_fully_qualified_name, "model", [(FULLY, "model", None)]),
    (names.check_fully_qualified_name, "", [(C_IDENTIFIER, "", None), (FULLY, "", None)]),
    (names.check_fully_qualified_name, "x.io/", [("the name must not be empty", "", None)]),
    (names.check_uid, "", [("error validating uid: invalid UUID length: 0", "", None)]),
    (names.check_uid, "a", [("error validating uid: invalid UUID length: 1", "a", None)]),
    (names.check_uid, UUID.upper(), [(NORMAL_UUID, UUID.upper(), None)]),
    (names.check_uid, UUID.replace("-", ""), [(NORMAL_UUID, UUID.replace("-", ""), None)]),
    (names.check_uid, f"{{{UUID}}}", [(NORMAL_UUID, f"{{{UUID}}}", None)]),
    (names.check_uid, f"urn:uuid:{UUID}", [(NORMAL_UUID, f"urn:uuid:{UUID}", None)]),
    (names.check_uid, "x" * 36, [("error validating uid: invalid UUID format", "x" * 36, None)]),
    (names.check_uid, "-" * 36, [("error validating uid: invalid UUID format", "-" * 36, None)]),
    (
        names.check_uid,
        UUID[:-1] + "\n",
        [("error validating uid: invalid UUID format", UUID[:-1] + "\n", None)],
    ),
]


@pytest.mark.parametrize(
    ("rule", "name", "expected"), BAD, ids=[f"{rule.__name__}-{name[:20]!r}" for rule, name, _ in BAD]
)
def test_bad_names_have_these_faults_in_this_order(rule, name, expected):
    assert [(fault.text, fault.value, fault.too_long) for fault in rule(name)] == expected


RULES = [rule for rule, _ in GOOD]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("piece", ["a", "/", "a.", "a-", "-", "a/", "é", "A_"])
def test_very_long_names_have_few_faults(rule, piece):
    """A name of half a megabyte is judged in one pass; with a pass per part this test would not come back."""
    assert len(rule(piece * 250_000)) <= 1 + (names.MAX_POOL + 1) // 2


def test_lone_surrogates_are_refused_like_anything_else():
    assert [fault.text for fault in names.check_dns_label("\ud800")] == [LABEL]


def test_a_fault_prints_as_its_text():
    assert str(NameFault("too odd", "name")) == "too odd"
