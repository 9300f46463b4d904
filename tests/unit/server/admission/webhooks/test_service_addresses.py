"""Addresses of services on the command line."""

from __future__ import annotations

import pytest

from dray.errors import InputError
from dray.server.admission.webhooks.service_addresses import parse_addresses


def test_addresses_are_found_by_namespace_and_name():
    assert parse_addresses(["a/b=127.0.0.1:8443", "a/c=[::1]:443", "x.y/z=host.example.com:1"]) == {
        ("a", "b"): "127.0.0.1:8443",
        ("a", "c"): "[::1]:443",
        ("x.y", "z"): "host.example.com:1",
    }


NONE = """
a a/b a/b= a/b=h a/b=:1 b=h:1 /b=h:1 a/=h:1 a/b=h:0 a/b=h:70000 a/b=h:x a/b/c=h:1 a/b=::1:5 a/b=u@h:1
a/b=https://h:1
"""


@pytest.mark.parametrize("text", ["", *NONE.split()])
def test_a_malformed_address_is_an_error(text):
    with pytest.raises(InputError, match="expected NAMESPACE/NAME=HOST:PORT"):
        parse_addresses([text])
