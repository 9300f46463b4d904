"""What a hostile tenant tries: over the API, and from inside a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OWN, OTHER = "team-a", "team-b"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DRA = "/apis/resource.k8s.io/v1"
MARK = "Zq4-not-for-tenants"
"""In every secret of the other namespace; no answer and no output may contain it."""
ROBOT = f"/api/v1/namespaces/{OTHER}/serviceaccounts/robot/token"
ROBOT_NAME = f"system:serviceaccount:{OTHER}:robot"
PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Attempt:
    """A request that must be refused."""

    what: str
    method: str
    path: str
    code: int = 403
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def own(path: str) -> str:
    return f"/api/v1/namespaces/{OWN}/{path}"


def other(path: str) -> str:
    return f"/api/v1/namespaces/{OTHER}/{path}"


def role(namespace: str, *rules: dict[str, Any], name: str = "tenant") -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": list(rules),
    }


def rule(groups: str, resources: str, verbs: str) -> dict[str, Any]:
    words = (groups.split(",") if groups else [""], resources.split(","), verbs.split(","))
    return dict(zip(("apiGroups", "resources", "verbs"), words, strict=True))


def binding(kind: str, to: str, name: str = "tenant", user: str = "mallory") -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": to.partition("/")[0], "name": to.partition("/")[2]},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def claim(name: str, *, admin: bool = False, **config: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", **({"adminAccess": True} if admin else {})}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}], **config}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def template(name: str) -> dict[str, Any]:
    spec = claim(name, admin=True)["spec"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def tenant_role() -> dict[str, Any]:
    """What the tenant may do: pods and claims of one namespace, and roles within their own rights."""
    everything = "get,list,watch,create,update,patch,delete"
    return role(
        OWN,
        rule("", "pods", everything),
        rule("", "pods/log", "get"),
        rule("resource.k8s.io", "resourceclaims,resourceclaimtemplates", everything),
        rule("rbac.authorization.k8s.io", "roles,rolebindings", "create,get,list"),
    )


TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim", "namespace": OTHER}}
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "own"},
    "target": {"kind": "Node", "name": "node-0"},
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "forged"},
    "involvedObject": {"kind": "Pod", "namespace": OTHER, "name": "victim"},
}
RUNNING = {"status": {"phase": "Succeeded"}}
TAKEN = {"status": {"allocation": None, "reservedFor": None}}
LABELLED = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "admin"}}
TOKEN_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
CSR = {
    "apiVersion": "certificates.k8s.io/v1",
    "kind": "CertificateSigningRequest",
    "metadata": {"name": "me"},
    "spec": {
        "request": "eA==",
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    },
}
HOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "listen"},
    "webhooks": [],
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "false"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "node-0",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d"}],
    },
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "all"},
    "spec": {},
}
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "made"}}
MASTERS = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
READ_SECRETS = role(OWN, rule("", "secrets", "get,list"), name="more")
ALL_CLUSTER = role("", rule("*", "*", "*"))
ESCALATE = role(OWN, rule("rbac.authorization.k8s.io", "roles", "escalate,bind"), name="more")
ADMIN = binding("RoleBinding", "ClusterRole/cluster-admin", "admin")
ADMIN_EVERYWHERE = binding("ClusterRoleBinding", "ClusterRole/cluster-admin", "admin")
ACCESS = f"/api/v1/namespaces/{OWN}"

OVER_THE_API = (
    Attempt("read a secret of another namespace", "GET", other("secrets/key")),
    Attempt("list the secrets of another namespace", "GET", other("secrets")),
    Attempt("list all secrets", "GET", "/api/v1/secrets"),
    Attempt("list the secrets of the own namespace", "GET", own("secrets")),
    Attempt("watch all pods", "GET", "/api/v1/pods?watch=true&timeoutSeconds=1"),
    Attempt("read a pod of another namespace", "GET", other("pods/victim")),
    Attempt("read the logs of another pod", "GET", other("pods/victim/log")),
    Attempt("run a command in another pod", "POST", other("pods/victim/exec?command=env")),
    Attempt("attach to another pod", "POST", other("pods/victim/attach")),
    Attempt("connect to another pod", "GET", other("pods/victim/proxy/")),
    Attempt("delete another pod", "DELETE", other("pods/victim")),
    Attempt("evict another pod", "POST", other("pods/victim/eviction"), body=EVICTION),
    Attempt("write the status of another pod", "PATCH", other("pods/victim/status"), body=RUNNING),
    Attempt("write the status of an own pod", "PATCH", own("pods/own/status"), body=RUNNING),
    Attempt("bind an own pod", "POST", own("pods/own/binding"), body=BINDING),
    Attempt("write the status of a node", "PATCH", "/api/v1/nodes/node-0/status", body={"status": {}}),
    Attempt("reach a node through the server", "GET", "/api/v1/nodes/node-0/proxy/containerLogs/"),
    Attempt("delete a node", "DELETE", "/api/v1/nodes/node-0"),
    Attempt("be an administrator", "GET", "/api/v1/secrets", headers=MASTERS),
    Attempt("be a node", "GET", other("secrets/key"), headers={"Impersonate-User": "system:node:node-0"}),
    Attempt("be another account", "GET", other("secrets/key"), headers={"Impersonate-User": ROBOT_NAME}),
    Attempt("be whom a proxy names", "GET", other("secrets/key"), headers={"X-Remote-User": "admin"}),
    Attempt("ask for the token of an account of another namespace", "POST", ROBOT, body=TOKEN_REQUEST),
    Attempt(
        "ask for a token of the own namespace",
        "POST",
        own("serviceaccounts/default/token"),
        body=TOKEN_REQUEST,
    ),
    Attempt("make a service account", "POST", other("serviceaccounts"), body=ACCOUNT),
    Attempt("give oneself more rights", "POST", f"{RBAC}/namespaces/{OWN}/roles", body=READ_SECRETS),
    Attempt("give oneself the right to escalate", "POST", f"{RBAC}/namespaces/{OWN}/roles", body=ESCALATE),
    Attempt("bind an administrator's role", "POST", f"{RBAC}/namespaces/{OWN}/rolebindings", body=ADMIN),
    Attempt("make a cluster role", "POST", f"{RBAC}/clusterroles", body=ALL_CLUSTER),
    Attempt("bind it everywhere", "POST", f"{RBAC}/clusterrolebindings", body=ADMIN_EVERYWHERE),
    Attempt(
        "claim with admin access",
        "POST",
        f"{DRA}/namespaces/{OWN}/resourceclaims",
        422,
        claim("a", admin=True),
    ),
    Attempt(
        "make a template with admin access",
        "POST",
        f"{DRA}/namespaces/{OWN}/resourceclaimtemplates",
        422,
        template("a"),
    ),
    Attempt("label the namespace for admin access", "PATCH", ACCESS, body=LABELLED),
    Attempt("read a claim of another namespace", "GET", f"{DRA}/namespaces/{OTHER}/resourceclaims/taken"),
    Attempt(
        "take the devices of another claim",
        "PATCH",
        f"{DRA}/namespaces/{OTHER}/resourceclaims/taken/status",
        body=TAKEN,
    ),
    Attempt(
        "allocate devices to an own claim",
        "PATCH",
        f"{DRA}/namespaces/{OWN}/resourceclaims/own/status",
        body=TAKEN,
    ),
    Attempt("publish devices", "POST", f"{DRA}/resourceslices", body=SLICE),
    Attempt("delete all devices", "DELETE", f"{DRA}/resourceslices"),
    Attempt("make a class", "POST", f"{DRA}/deviceclasses", body=CLASS),
    Attempt(
        "take the place of the scheduler", "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    ),
    Attempt("forge an event", "POST", other("events"), body=EVENT),
    Attempt(
        "listen with a webhook",
        "POST",
        f"/apis/{HOOK['apiVersion']}/mutatingwebhookconfigurations",
        body=HOOK,
    ),
    Attempt(
        "ask for a certificate", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", body=CSR
    ),
    Attempt("try tokens", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=TOKEN_REVIEW),
    Attempt(
        "ask what others may do", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=REVIEW
    ),
    Attempt("copy the store", "GET", "/dray/backup"),
    Attempt("read the ledger", "GET", "/dray/ledger"),
    Attempt("repair the ledger", "POST", "/dray/ledger/repair"),
    Attempt("read the metrics", "GET", "/metrics"),
    Attempt("find a path that is not there", "GET", "/debug/pprof/heap"),
    Attempt("find a kind that is not there", "GET", "/apis/keys.example.com/v1/keys"),
    Attempt("renew a certificate", "POST", "/dray/certificate", body={}),
    Attempt("leave the namespace by the path", "GET", own("../team-b/secrets/key")),
    Attempt("leave the namespace by an encoded path", "GET", own("%2e%2e/team-b/secrets/key")),
)

INSIDE_A_POD = {
    "read the key of the authority": "cat $DATA/keys/ca.key",
    "read the key of service account tokens": "cat $DATA/keys/service-account.key",
    "read the key of the server": "cat $DATA/keys/serving.pem",
    "read the credentials of the administrator": "cat $DATA/admin.kubeconfig",
    "read the store": "head -c 16 $DATA/store.db",
    "read the audit log": "head -c 16 $DATA/audit.log",
    "write the audit log": "echo x >> $DATA/audit.log && echo written",
    "lock the store": "flock -n $DATA/store.db.lock echo locked",
    "list the data directory": "ls -A $DATA",
    "read the certificate of the node": "cat $DATA/nodes/node-0/serving.pem",
    "read the checkpoint of the agent": "cat $DATA/nodes/node-0/checkpoint/*",
    "read the logs of other pods": "cat $DATA/nodes/*/logs/*/*/*",
    "read the devices of other claims": "cat $DATA/nodes/*/cdi/*",
    "write a CDI file": "echo '{}' > $DATA/nodes/node-0/cdi/made.json && echo written",
    "find the sockets of drivers": "find / -xdev -type s -path '*gpu.example.com*'",
    "follow a link to a key": "ln -s $DATA/keys/ca.key $TMPDIR/key && cat $TMPDIR/key",
    "make a hard link to a key": "ln $DATA/keys/ca.key $TMPDIR/hard && echo made",
    "read a key by the directory of another process": "cat /proc/$SERVER/root$DATA/keys/ca.key",
    "read a key by the files that the server has open": "cat /proc/$SERVER/fd/*",
    "read a key by a hostPath volume": "cat /host/keys/ca.key",
    "read a token": "cat /var/run/secrets/kubernetes.io/serviceaccount/token",
    "read the variables of another pod": "cat /proc/$VICTIM/environ",
    "read the memory of another pod": "head -c 1 /proc/$VICTIM/mem",
    "read the command of another pod": "cat /proc/$VICTIM/cmdline",
    "read the variables of the server": "cat /proc/$SERVER/environ",
    "end another pod": "kill -9 $VICTIM && echo killed",
    "end the server": "kill -9 $SERVER && echo killed",
    "trace another pod": "gdb -p $VICTIM -batch; strace -p $VICTIM; nsenter -t $VICTIM -m echo entered",
    "read the temporary files of another pod": "cat $(dirname $TMPDIR)/dray-pod-*/secret",
    "have capabilities": "grep -E 'Cap(Prm|Eff|Bnd|Inh|Amb)' /proc/self/status | grep -v 0000000000000000",
    "gain rights": "su -c id; sudo -n id; setpriv --reuid 0 id",
    "become root in a namespace": "unshare --user --map-root-user --mount cat $DATA/keys/ca.key",
    "remove a mount in a namespace": "unshare -Urm sh -c 'umount -l $0; cat $0/keys/ca.key' $DATA",
    "make a device file": "mknod $TMPDIR/disk b 254 0 && echo made",
    "open devices of the machine": "for name in vda sda mem kmsg; do head -c 1 /dev/$name; done",
    "have a device without a claim": "env | grep GPU",
    "inherit variables of the server": "env | grep -E 'KUBECONFIG|SECRET|PYTHON'",
    "inherit open files": "ls /proc/self/fd | grep -v '^[0-3]$'",
    "write files of the machine": "echo x > /etc/made-by-a-pod && echo written",
}
