"""Whether the tracking servers of the experiment answer from this node. Training goes on either way: it is told."""

from __future__ import annotations

import os
import socket
from typing import Dict, Mapping
from urllib.parse import urlsplit

WAIT_S = 5.0
_PORTS = {"https": 443, "http": 80}


def servers(env: Mapping[str, str]) -> Dict[str, str]:
    """Name -> address of the servers that the environment names; none for files and for W&B offline."""
    found = {}
    mlflow = env.get("MLFLOW_TRACKING_URI", "")
    if urlsplit(mlflow).scheme in _PORTS:
        found["MLflow"] = mlflow
    if env.get("WANDB_PROJECT") and env.get("WANDB_MODE", "online") == "online":
        found["W&B"] = env.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    return found


def obstacle(address: str, env: Mapping[str, str]) -> str:
    """Why the server cannot be reached, "" when it (or the proxy in front of it) takes a connection."""
    scheme = urlsplit(address).scheme
    proxy = env.get(scheme + "_proxy") or env.get(scheme.upper() + "_PROXY") or ""
    asked = urlsplit(proxy if "://" in proxy else "http://" + proxy) if proxy else urlsplit(address)
    try:
        host, port = asked.hostname or "", asked.port or _PORTS[asked.scheme]
        socket.create_connection((host, port), timeout=WAIT_S).close()
    except (OSError, ValueError, KeyError) as error:
        by = " (proxy)" if proxy else ""
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return f"{asked.netloc}{by}: {reason}"
    return ""
