"""Weights & Biases for training and reports: the x axis of all metrics, and the key of a server."""

import netrc
import os
from urllib.parse import urlsplit

STEPS = "steps"  # the metric that is the x axis: number of optimizer steps taken


def has_wandb_key(server: str) -> bool:
    """Return whether the environment or the file netrc has a key for a Weights & Biases server, given by its URL."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(server).hostname or server
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
