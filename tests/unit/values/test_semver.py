"""Semantic versions: parsing, precedence, and what is refused."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest

from dray.values.semver import Version, VersionError

# The chain of precedence that the specification gives as its example, with a few links of our own.
RISING = [
    "0.0.0-0",
    "0.0.0",
    "0.0.1",
    "0.1.0",
    "1.0.0-0",
    "1.0.0-1",
    "1.0.0-9",
    "1.0.0-10",
    "1.0.0-18446744073709551615",
    "1.0.0--",
    "1.0.0-A",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.1.0",
    "1.0.0-alpha.beta",
    "1.0.0-alpha-",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0-rc.1+build.7",
    "2.0.0",
    "18446744073709551615.18446744073709551615.18446744073709551615",
]


def test_precedence_rises_along_the_chain():
    versions = [Version.parse(text) for text in RISING]
    for (i, lower), (j, higher) in itertools.combinations(enumerate(versions), 2):
        assert i < j
        assert lower < higher
        assert lower <= higher
        assert lower != higher
        assert higher > lower
        assert higher >= lower


@pytest.mark.parametrize(
    ("text", "numbers", "prerelease", "build"),
    [
        ("1.2.3", (1, 2, 3), (), ()),
        ("1.2.3-rc.1", (1, 2, 3), ("rc", "1"), ()),
        ("1.2.3+a.007", (1, 2, 3), (), ("a", "007")),
        ("1.2.3-a-b.0+c-d.e", (1, 2, 3), ("a-b", "0"), ("c-d", "e")),
        ("1.2.3--+-", (1, 2, 3), ("-",), ("-",)),
        ("1.2.3-0a", (1, 2, 3), ("0a",), ()),
        ("1.2.3+x-y", (1, 2, 3), (), ("x-y",)),
    ],
)
def test_the_pieces_of_a_version(text, numbers, prerelease, build):
    version = Version.parse(text)
    assert (version.major, version.minor, version.patch) == numbers
    assert version.prerelease == prerelease
    assert version.build == build
    assert str(version) == version.text == text


def test_build_metadata_is_kept_but_does_not_count():
    one, other = Version.parse("1.0.0+a"), Version.parse("1.0.0+b")
    assert one == other
    assert hash(one) == hash(other)
    assert one <= other
    assert not one < other
    assert one.text != other.text
    assert Version.parse("1.0.0") == one


REFUSALS = [
    ("", "expected three numbers, `MAJOR.MINOR.PATCH`"),
    ("1", "expected three numbers"),
    ("1.2", "expected three numbers"),
    ("1.2.3.4", "expected three numbers"),
    ("1.2-3", "expected three numbers"),
    ("v1.2.3", "starts with `v`; a version is written without it"),
    ("V1.2.3", "starts with `V`"),
    ("01.2.3", "major is `01`; leading zeros are not allowed"),
    ("1.02.3", "minor is `02`; leading zeros"),
    ("1.2.00", "patch is `00`; leading zeros"),
    ("1..3", "minor is ``; expected a number"),
    ("1.2.x", "patch is `x`; expected a number"),
    ("1.2.+3", "patch is ``; expected a number"),
    ("-1.2.3", "expected three numbers"),
    ("1.2.3 ", "patch is `3 `; expected a number"),
    (" 1.2.3", "major is ` 1`; expected a number"),
    ("1.2.3\n", r"patch is `3\n`; expected a number"),
    ("1.2.1_0", "patch is `1_0`; expected a number"),
    ("1.2.３", "outside ASCII"),
    ("1.2.3-é", "outside ASCII"),
    ("18446744073709551616.0.0", "the largest number is 18446744073709551615"),
    ("1.2.3-18446744073709551616", "prerelease identifier is `18446744073709551616`; the largest"),
    ("1.2.3-01", "prerelease identifier is `01`; leading zeros"),
    ("1.2.3-a.00", "prerelease identifier is `00`; leading zeros"),
    ("1.2.3-", "empty identifier in the prerelease"),
    ("1.2.3-a..b", "empty identifier in the prerelease"),
    ("1.2.3-+b", "empty identifier in the prerelease"),
    ("1.2.3+", "empty identifier in the build metadata"),
    ("1.2.3+a..b", "empty identifier in the build metadata"),
    ("1.2.3-a_b", "prerelease identifier `a_b`: only letters, digits and `-`"),
    ("1.2.3+a+b", "build metadata identifier `a+b`: only letters, digits and `-`"),
    ("1.2.3+a\n", r"build metadata identifier `a\n`"),
    ("1.2.3-" + "a" * 250, "256 characters; a version has at most 255"),
    ("1" * 1_000_000, "1000000 characters"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSALS, ids=[repr(row[0][:20]) for row in REFUSALS])
def test_a_refusal_says_what_is_wrong(text, reason):
    with pytest.raises(VersionError) as refusal:
        Version.parse(text)
    assert reason in refusal.value.reason
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 200


def test_a_version_cannot_be_changed_and_copies_are_equal():
    version = Version.parse("1.2.3-rc.1+b")
    with pytest.raises(AttributeError, match="cannot be changed"):
        version.major = 2
    with pytest.raises(AttributeError, match="cannot be changed"):
        del version.text
    for again in (copy.deepcopy(version), pickle.loads(pickle.dumps(version))):
        assert again == version
        assert again.text == version.text
    assert Version.parse("1.2.3-rc.1+b") is version
    assert repr(version) == "Version('1.2.3-rc.1+b')"


@pytest.mark.parametrize("other", ["1.0.0", (1, 0, 0), None])
def test_versions_do_not_compare_with_other_things(other):
    version = Version.parse("1.0.0")
    assert version != other
    for operation in ("__lt__", "__le__", "__gt__", "__ge__"):
        assert getattr(version, operation)(other) is NotImplemented
