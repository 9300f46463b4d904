"""`dray server credentials`: writes a kubeconfig for a person, a node or a driver."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.commands.services.service_options import DATA_DIR
from dray.errors import InputError


@click.command(short_help="Write a kubeconfig for a user")
@click.argument("user")
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="A group of the user; may be given again."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    help="The data directory of the server, with its keys.",
)
@click.option(
    "--server",
    "url",
    default="",
    metavar="URL",
    help="The server's address.  [default: that of the administrator's kubeconfig]",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the certificate is valid.",
)
def command(user: str, groups: tuple[str, ...], data_dir: Path, url: str, days: int) -> int:
    """Print a kubeconfig with a new certificate for USER.

    The certificate is signed with the keys in the data directory and is not stored: whoever has the
    kubeconfig is USER until it expires. Roles say what USER may do, except for nodes, which are users
    `system:node:NAME` of the group `system:nodes`.
    """
    from dray.manifests.writer import to_yaml_block
    from dray.server.auth.authn.certificates import CertificateAuthority
    from dray.server.auth.authn.kubeconfig import build_kubeconfig

    keys = data_dir / "keys"
    if not (keys / "ca.crt").exists():
        raise InputError(f"there are no keys in `{keys}`; name the directory of a server with --data-dir")
    certificates = CertificateAuthority.open_for_clients(keys)
    certificate = certificates.issue_client_certificate(user, groups, days)
    document = build_kubeconfig(
        url or _read_server_address(data_dir), certificates.ca_pem, certificate, user=user
    )
    click.echo(to_yaml_block(document), nl=False)
    return 0


def _read_server_address(data_dir: Path) -> str:
    """Read the address from the administrator's kubeconfig."""
    import yaml

    path = data_dir / "admin.kubeconfig"
    try:
        address: str = yaml.safe_load(path.read_text("utf-8"))["clusters"][0]["cluster"]["server"]
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError):
        raise InputError(f"`{path}` does not have the server's address; give it with --server") from None
    return address
