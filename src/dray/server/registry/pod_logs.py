"""Pod logs: requests the log of a container from its node agent and streams it to the client.

Theory of operation: logs are stored on the node where the container runs. The Node object has the address of
its agent and, in an annotation that only the node and administrators can write, the fingerprint of the
agent's certificate, or of two while the agent renews it; the server accepts no other certificate. It
authenticates to the agent with a client certificate of its own authority, which is issued here, renewed and
kept in memory; the agent relies on the server for authorization.

The HTTP library is imported with the first request: not every server is asked for logs.

Rules for this file: log contents are not interpreted; options are validated before the agent is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from dray.api.kinds import get_kind
from dray.clock import Clock
from dray.private_files import open_memory_file
from dray.server.auth.authn.certificates import CertificateAuthority, IssuedCredentials
from dray.server.http.errors import ApiStatusError, new_bad_request, new_internal_error, new_not_found
from dray.server.http.requests import ApiRequest, ApiResponse
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache
from dray.values.names import check_dns_subdomain
from dray.x509_certificates import is_renewal_due, parse_certificates

if TYPE_CHECKING:
    import aiohttp
    from cryptography import x509
    from yarl import URL

LOG_CLIENT_IDENTITY: Final = "dray:apiserver"
"""The user as which the server calls agents, with the role `dray:log-fetcher`, which allows nothing else."""
CERTIFICATE_ANNOTATION: Final = "dray.dev/serving-certificate"
"""On a node: the SHA-256 of the serving certificate of its agent; two while it is renewed."""
_MAX_FINGERPRINTS: Final = 2

_POD, _NODE = get_kind("", "Pod"), get_kind("", "Node")
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 30.0
_CERTIFICATE_DAYS: Final = 7

_FLAGS: Final = ("follow", "previous", "timestamps")
_MINIMUMS: Mapping[str, int] = {"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}
_TRUE: Final = ("true", "1", "True")


class PodLogs:
    """Answers `pods/log`."""

    def __init__(self, cache: WatchCache, keys: Path, clock: Clock) -> None:
        self._cache = cache
        self._keys = keys
        self._clock = clock
        self._client_tls: tuple[x509.Certificate, ssl.SSLContext] | None = None

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer with the log of a container, as a stream of text."""
        from yarl import URL

        call = request.call
        await self._cache.wait_until_fresh()
        pod = self._cache.get(_POD, call.namespace, call.name)
        if pod is None:
            raise new_not_found(_POD, call.name)
        container = _choose_container(pod, call.query.get("container", ""))
        query = _read_options(call.query)
        url, fingerprints = self._find_agent(pod)
        where = "/".join(quote(part, safe="") for part in (call.namespace, call.name, container))
        # The pod may be replaced by one of the same name before the agent answers.
        query["uid"] = pod.metadata.uid
        target = URL(f"{url}/containerLogs/{where}?{urlencode(query)}", encoded=True)
        return await self._request_log(target, fingerprints, get_node_name(pod))

    @property
    def certificate_expiry(self) -> datetime | None:
        """When the client certificate expires; None while there is none."""
        return None if self._client_tls is None else self._client_tls[0].not_valid_after_utc

    def _find_agent(self, pod: StoredObject) -> tuple[str, list[bytes]]:
        """The URL of the agent of a pod's node, and the fingerprints of its certificate."""
        name = get_node_name(pod)
        if not name:
            raise new_bad_request(f"pod {pod.name} has no node yet, so it has no logs")
        node = self._cache.get(_NODE, "", name)
        if node is None:
            raise new_internal_error(
                f"node {name} of pod {pod.name} does not exist any more, nor do its logs"
            )
        document = node.document
        annotations = document["metadata"].get("annotations") or {}
        status = document.get("status") or {}
        host = _find_address(status)
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        fingerprints = _parse_fingerprints(str(annotations.get(CERTIFICATE_ANNOTATION) or ""))
        if not host or not isinstance(port, int) or fingerprints is None:
            raise new_internal_error(
                f"node {name} does not say where its agent serves logs: expected an address, "
                f"a port in status.daemonEndpoints and the annotation `{CERTIFICATE_ANNOTATION}`"
            )
        if any(len(each) != 32 for each in fingerprints):
            raise new_internal_error(
                f"the annotation `{CERTIFICATE_ANNOTATION}` of node {name} is no fingerprint"
            )
        if not _is_host(host) or not 0 < port < 65536:
            # Anything else could be parsed as another host, or as another path on that host.
            raise new_internal_error(
                f"the agent of node {name} cannot be called at `{host}` and port {port}: that is no address"
            )
        return f"https://{f'[{host}]' if ':' in host else host}:{port}", fingerprints

    async def _request_log(self, target: URL, fingerprints: Sequence[bytes], node: str) -> ApiResponse:
        import aiohttp

        for fingerprint in fingerprints[:-1]:
            with contextlib.suppress(aiohttp.ServerFingerprintMismatch):
                return await self._send_request(target, fingerprint, node)
        try:
            return await self._send_request(target, fingerprints[-1], node)
        except aiohttp.ServerFingerprintMismatch as error:
            raise new_internal_error(_explain_unreachable(node, target, error)) from None

    async def _send_request(self, target: URL, fingerprint: bytes, node: str) -> ApiResponse:
        """Request a log; raises `ServerFingerprintMismatch` when the agent has another certificate."""
        import aiohttp

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=aiohttp.Fingerprint(fingerprint), limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        )
        try:
            context = await asyncio.to_thread(self._get_tls_context)
            async with asyncio.timeout(_ANSWER_SECONDS):
                response = await session.get(target, ssl=context, allow_redirects=False)
            if response.status == 200:
                return ApiResponse(200, _stream_response(session, response), "text/plain")
            text = (await response.content.read(4096)).decode("utf-8", "replace").strip()
        except aiohttp.ServerFingerprintMismatch:
            await session.close()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await session.close()
            raise new_internal_error(_explain_unreachable(node, target, error)) from None
        except BaseException:
            await session.close()
            raise
        await session.close()
        raise _to_api_error(response.status, text, node)

    def _get_tls_context(self) -> ssl.SSLContext:
        """The TLS context with the server's client certificate; the fingerprint verifies the agent."""
        if self._client_tls is None or is_renewal_due(self._client_tls[0], self._clock.now()):
            authority = CertificateAuthority.open_for_clients(self._keys, self._clock)
            issued = authority.issue_client_certificate(LOG_CLIENT_IDENTITY, (), _CERTIFICATE_DAYS)
            (certificate,) = parse_certificates(issued.cert_pem)
            self._client_tls = (certificate, _build_tls_context(issued))
        return self._client_tls[1]


def _parse_fingerprints(annotation: str) -> list[bytes] | None:
    """Parse the fingerprints in an annotation; a malformed one is empty. None when there are none."""
    parts = [part.strip().partition(":") for part in annotation.split(",")]
    if len(parts) > _MAX_FINGERPRINTS or any(algorithm != "sha256" for algorithm, _, _ in parts):
        return None
    found = []
    for _, _, digest in parts:
        try:
            found.append(bytes.fromhex(digest))
        except ValueError:
            found.append(b"")
    return found


def _build_tls_context(credentials: IssuedCredentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # agents use self-signed certificates: fingerprints are compared
    with open_memory_file(credentials.cert_pem + credentials.key_pem) as file:
        context.load_cert_chain(file)
    return context


async def _stream_response(
    session: aiohttp.ClientSession, response: aiohttp.ClientResponse
) -> AsyncIterator[bytes]:
    """Stream what the agent sends; a broken connection ends the stream with a line that says so."""
    import aiohttp

    try:
        async for part in response.content.iter_any():
            yield part
    except (aiohttp.ClientError, OSError) as error:
        yield f"\ndray: the connection to the node broke: {error}\n".encode()
    finally:
        response.close()
        await session.close()


def get_node_name(pod: StoredObject) -> str:
    """The name of a pod's node; empty while it has none."""
    return str((pod.document.get("spec") or {}).get("nodeName") or "")


def _find_address(status: Mapping[str, Any]) -> str:
    """The address at which the agent of a node listens."""
    addresses = {
        str(each.get("type")): str(each.get("address") or "") for each in status.get("addresses") or ()
    }
    return addresses.get("InternalIP") or addresses.get("Hostname") or ""


def _is_host(text: str) -> bool:
    """Whether a text is an IP address or a host name, and nothing else."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return not check_dns_subdomain(text.lower())
    return "%" not in text


def _choose_container(pod: StoredObject, requested: str) -> str:
    """The requested container, or the only one; raises the error of kubectl when the choice is ambiguous."""
    spec = pod.document.get("spec") or {}
    containers = [str(each.get("name")) for each in spec.get("containers") or ()]
    inits = [str(each.get("name")) for each in spec.get("initContainers") or ()]
    if requested:
        if requested not in (*containers, *inits):
            raise new_bad_request(f"container {requested} is not valid for pod {pod.name}")
        return requested
    if len(containers) == 1:
        return containers[0]
    hint = f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
    raise new_bad_request(
        f"a container name must be specified for pod {pod.name}, "
        f"choose one of: [{' '.join(containers)}]{hint}"
    )


def _read_options(query: Mapping[str, str]) -> dict[str, str]:
    """The validated log options of a query."""
    options = {name: "true" for name in _FLAGS if query.get(name) in _TRUE}
    for name, least in _MINIMUMS.items():
        text = query.get(name, "")
        if not text:
            continue
        try:
            number = int(text)
        except ValueError:
            raise new_bad_request(f"{name} must be a whole number, not `{text}`") from None
        if number < least:
            raise _new_invalid_log_options(name, text, f"must be greater than or equal to {least}")
        options[name] = str(number)
    if query.get("sinceTime"):
        if "sinceSeconds" in options:
            raise _new_invalid_log_options(
                "", "", "at most one of `sinceTime` or `sinceSeconds` may be specified"
            )
        options["sinceTime"] = query["sinceTime"]
    return options


def _new_invalid_log_options(field: str, value: str, what: str) -> ApiStatusError:
    text = f'{field}: Invalid value: "{value}": {what}' if field else what
    return ApiStatusError(422, "Invalid", f'PodLogOptions "" is invalid: {text}', {"kind": "PodLogOptions"})


def _explain_unreachable(node: str, target: URL, error: BaseException) -> str:
    import aiohttp

    address = f"{target.host}:{target.port}"
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        why = (
            "the certificate of the server there is not the one in the annotation "
            f"`{CERTIFICATE_ANNOTATION}` of the node"
        )
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        why = os.strerror(number) if number > 0 else str(error.os_error)
    else:
        why = str(error) or "no answer in time"
    return f"the agent of node {node} cannot be reached at {address}: {why.lower()}"


def _to_api_error(code: int, text: str, node: str) -> ApiStatusError:
    if code == 400:
        return new_bad_request(text)
    if code == 404:
        return ApiStatusError(404, "NotFound", text, {})
    return new_internal_error(f"the agent of node {node} answers {code}: {text or 'nothing'}")
