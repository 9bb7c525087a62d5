"""Deletes the pod of Kubernetes in which this process runs, as the account of the pod."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

logger = logging.getLogger(__name__)

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Token, certificate and namespace, as Kubernetes mounts them."""
_SECONDS = 10.0


def delete_pod(name: str) -> None:
    """Delete a pod of the own namespace; failures are logged.

    The cluster then ends this process, and deletes what belongs to the pod.
    """
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        namespace = quote((_ACCOUNT / "namespace").read_text("utf-8").strip())
        token = (_ACCOUNT / "token").read_text("utf-8").strip()
        request = Request(
            f"https://{place}/api/v1/namespaces/{namespace}/pods/{quote(name)}",
            headers={"Authorization": f"Bearer {token}"},
            method="DELETE",
        )
        trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
        with urlopen(request, timeout=_SECONDS, context=trusted):
            pass
    except (KeyError, OSError) as problem:
        logger.warning("the pod %s could not be deleted: %s", name, problem)
