"""Finds the key of a Weights & Biases server without asking the user for it."""

import netrc
import os
from urllib.parse import urlsplit


def has_wandb_key(server: str) -> bool:
    """Return whether the environment or the file netrc has a key for a Weights & Biases server, given by its URL."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(server).hostname or server
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
