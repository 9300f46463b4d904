"""Kubeconfig files: which entries count, and the messages about mistakes."""

from __future__ import annotations

import base64
import json
import os

import pytest
import yaml

from dray.client.config.client_config import (
    ClientConfigError,
    ClientCredential,
    FileCredentialProvider,
    StaticCredentialProvider,
)
from dray.client.config.exec_plugin import ExecCredentialProvider
from dray.client.config.kubeconfig import (
    Kubeconfig,
    find_kubeconfig_files,
    load_client_config,
    load_in_cluster_config,
)


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster=None, user=None, context=None, **more):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"} | (context or {})}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
    } | more


@pytest.fixture
def write(tmp_path):
    def written(document, name="config"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return file

    return written


async def test_certificates_as_text(write):
    cluster = {"certificate-authority-data": coded("CA"), "tls-server-name": "kubernetes"}
    user = {"client-certificate-data": coded("CERT"), "client-key-data": coded("KEY")}
    access = Kubeconfig([write(config(cluster, user, {"namespace": "work"}))]).build_client_config()
    assert (access.server, access.namespace, access.ca) == ("https://api:6443", "work", b"CA")
    assert (access.server_name, access.insecure) == ("kubernetes", False)
    assert await access.credential_provider.get_credential() == ClientCredential("", b"CERT", b"KEY")


async def test_files_are_relative_to_the_file_that_names_them(write):
    for name, text in (("pki/ca", "CA"), ("pki/cert", "CERT"), ("pki/key", "KEY")):
        write(text, name)
    user = {"client-certificate": "cert", "client-key": "key"}
    access = Kubeconfig(
        [write(config({"certificate-authority": "ca"}, user), "pki/config")]
    ).build_client_config()
    assert access.ca == b"CA"
    assert await access.credential_provider.get_credential() == ClientCredential("", b"CERT", b"KEY")


async def test_tokens(write):
    write("from-file\n", "token")
    both = Kubeconfig([write(config(user={"token": "fixed", "tokenFile": "token"}))]).build_client_config()
    assert await both.credential_provider.get_credential() == ClientCredential("fixed")
    file = Kubeconfig([write(config(user={"tokenFile": "token"}))]).build_client_config()
    assert isinstance(file.credential_provider, FileCredentialProvider)
    assert await file.credential_provider.get_credential() == ClientCredential("from-file")
    assert "from-file" not in repr(await file.credential_provider.get_credential())


async def test_nobody_in_particular(write):
    access = Kubeconfig(
        [write(config({"insecure-skip-tls-verify": True}, context={"user": ""}))]
    ).build_client_config()
    assert isinstance(access.credential_provider, StaticCredentialProvider)
    assert await access.credential_provider.get_credential() == ClientCredential()
    assert access.insecure


def test_as_somebody_else(write):
    access = Kubeconfig([write(config(user={"as": "ann", "token": "t"}))]).build_client_config()
    assert access.headers == {"Impersonate-User": "ann"}


def test_json_is_yaml(write):
    assert Kubeconfig([write(json.dumps(config()))]).build_client_config().server == "https://api:6443"


async def test_of_several_files_the_first_counts(write):
    first = config(user={"token": "one"}, **{"current-context": ""})
    second = config({"server": "https://other:1"}, {"token": "two"}, **{"current-context": "there"})
    second["contexts"].append({"name": "there", "context": {"cluster": "c2", "user": "u"}})
    second["clusters"].append({"name": "c2", "cluster": {"server": "https://second:1"}})
    merged = Kubeconfig([write(first, "a/config"), write(second, "b/config")])
    assert merged.list_contexts() == ("here", "there")
    assert merged.build_client_config().server == "https://second:1"
    assert await merged.build_client_config().credential_provider.get_credential() == ClientCredential("one")
    assert merged.build_client_config("here").server == "https://api:6443"


def test_which_files_count(write, tmp_path):
    one, two = write(config(), "one"), write(config(), "two")
    missing = tmp_path / "missing"
    named = os.pathsep.join(map(str, [missing, one, "", two]))
    assert find_kubeconfig_files({"KUBECONFIG": named}) == [one, two]
    assert find_kubeconfig_files({"KUBECONFIG": str(missing)}) == [missing]
    assert find_kubeconfig_files({"HOME": str(tmp_path)}) == [tmp_path / ".kube" / "config"]


def test_a_file_given_goes_before_the_environment(write):
    given, other = write(config({"server": "https://given:1"}), "g"), write(config(), "o")
    assert load_client_config(str(given), environment={"KUBECONFIG": str(other)}).server == "https://given:1"
    assert load_client_config(environment={"KUBECONFIG": str(other)}).server == "https://api:6443"


async def test_inside_a_pod(write, tmp_path):
    for name, text in (("ca.crt", "CA"), ("token", "tok"), ("namespace", "mine\n")):
        write(text, f"account/{name}")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load_in_cluster_config(environment, tmp_path / "account")
    assert (access.server, access.namespace, access.ca) == ("https://[fd00::1]:443", "mine", b"CA")
    assert await access.credential_provider.get_credential() == ClientCredential("tok")
    with pytest.raises(ClientConfigError, match="not in a pod"):
        load_in_cluster_config({})
    with pytest.raises(ClientConfigError, match=r"serviceaccount.ca\.crt"):
        load_client_config(environment=environment | {"HOME": str(tmp_path)})


def test_a_program_for_credentials(write, tmp_path):
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./login",
        "args": ["--for", 1],
        "env": [{"name": "A", "value": "b"}],
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
        "installHint": "get it",
    }
    cluster = {
        "certificate-authority-data": coded("CA"),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    access = Kubeconfig([write(config(cluster, {"exec": spec}))]).build_client_config()
    assert isinstance(access.credential_provider, ExecCredentialProvider)
    program = access.credential_provider._plugin
    assert program.command == str(tmp_path / "login")
    assert program.arguments == ("--for", "1")
    assert program.environment == {"A": "b"}
    assert program.install_hint == "get it"
    assert program.cluster == {
        "server": "https://api:6443",
        "certificate-authority-data": coded("CA"),
        "config": {"audience": "x"},
    }


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}

MISTAKES = [
    ("a: [", r"config: not YAML: .*line 2"),
    ("just text", "config: expected a kubeconfig"),
    ({"clusters": 3}, "config: clusters: expected a list"),
    ({"users": [{"user": {}}]}, r"config: users\[0\]: expected `name` and `user`"),
    ({"users": [{"name": "u", "user": "x"}]}, r"config: users\[0\]\.user: expected fields"),
    ({}, "current-context: nothing is chosen; there are no contexts at all"),
    (config(**{"current-context": "there"}), "there is no context `there`; expected one of `here`"),
    (
        config(context={"cluster": "x"}),
        "context `here`: cluster: there is no cluster `x`; expected one of `c`",
    ),
    (config(context={"user": "x"}), "context `here`: user: there is no user `x`; expected one of `u`"),
    (config({"server": "api:6443"}), "cluster `c`: server: expected for example .* got `api:6443`"),
    (config({"server": None}), "cluster `c`: server: expected for example"),
    (config({"server": 7}), "cluster `c`: server: expected text, got `int`"),
    (config({"insecure-skip-tls-verify": "yes"}), "insecure-skip-tls-verify: expected `true` or `false`"),
    (config({"certificate-authority-data": "%%"}), "certificate-authority-data: expected base64"),
    (config({"certificate-authority": "no/ca"}), "cluster `c`: certificate-authority: cannot read .*no/ca"),
    (config({"proxy-url": "http://p"}), "cluster `c`: proxy-url: proxies are not supported"),
    (config(user={"client-certificate-data": coded("x")}), "user `u`: client-certificate: .* one is missing"),
    (config(user={"auth-provider": {"name": "gcp"}}), "user `u`: auth-provider: .* use `exec`"),
    (config(user={"username": "a", "password": "b"}), "user `u`: username: passwords were removed"),
    (config(user={"as": "a", "as-groups": ["b"]}), "user `u`: as-groups: .* not supported"),
    (config(user={"exec": "login"}), "user `u`: exec: expected `apiVersion`"),
    (config(user={"exec": EXEC | {"apiVersion": "v9"}}), "`exec`: apiVersion: expected .* got `v9`"),
    (config(user={"exec": EXEC | {"command": ""}}), "`exec`: command: which program"),
    (
        config(user={"exec": EXEC | {"interactiveMode": "Always"}}),
        "interactiveMode: `Always` needs a terminal",
    ),
    (config(user={"exec": EXEC | {"env": ["A=b"]}}), "`exec`: env: expected a list of `name` and `value`"),
]


@pytest.mark.parametrize(("document", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_name_file_and_field(write, document, message):
    file = write(document)
    with pytest.raises(ClientConfigError, match=message) as raised:
        Kubeconfig([file]).build_client_config()
    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ClientConfigError, match=r"cannot read the kubeconfig `.*nowhere`: No such file"):
        load_client_config(str(tmp_path / "nowhere"))


def test_nothing_configured_at_all(tmp_path):
    with pytest.raises(
        ClientConfigError, match=r"no server to talk to: there is no `.*config`.*name a kubeconfig"
    ):
        load_client_config(environment={"HOME": str(tmp_path)})
