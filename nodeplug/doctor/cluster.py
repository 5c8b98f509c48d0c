"""The API server, which DRA needs: the credentials, whether it answers, and its version of resource.k8s.io."""

from collections.abc import Iterator
from pathlib import Path

from nodeplug.config import Settings
from nodeplug.doctor.finding import Finding
from resourceapi.client import ClientError, CredentialsError, from_kubeconfig, in_cluster
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, v1

_SUBJECT = "API server"
_TIMEOUT = 5.0  # seconds


def examine(settings: Settings) -> Iterator[Finding]:
    """List this driver's slices, as the daemon does."""
    credentials = from_kubeconfig(Path(settings.kubeconfig)) if settings.kubeconfig else in_cluster()
    try:
        server = credentials().server
    except CredentialsError as error:
        yield Finding("wrong", _SUBJECT, str(error), "set settings.kubeconfig, or `api: device-plugin`")
        return
    client = Client(credentials, timeout=_TIMEOUT, attempts=1)
    try:
        page = client.any_version(v1.ResourceSlice).list(field_selector=f"spec.driver={settings.driver_name}")
    except (ClientError, DecodeError) as error:
        yield Finding("wrong", _SUBJECT, f"{server}: {error}", "DRA needs it, with rights to resourceslices")
    else:
        yield Finding("ok", _SUBJECT, f"ResourceSlices of {settings.driver_name} at {server}: {len(page.items)}")
    finally:
        client.close()
