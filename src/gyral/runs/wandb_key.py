"""Weights & Biases for training and reports: the x axis of all metrics, and the key of a server."""

import os
from typing import Any

STEPS = "steps"  # the metric that is the x axis: number of optimizer steps taken


def has_wandb_key(settings: Any) -> bool:
    """Return whether the user has a key for the server of his settings of Weights & Biases, wherever wandb finds it.

    A key that wandb refuses counts: `wandb.init` gives the reason.
    """
    from wandb.errors import AuthenticationError
    from wandb.sdk.lib import wbauth

    if os.environ.get("WANDB_API_KEY") or settings.api_key or settings.identity_token_file:
        return True
    try:
        return wbauth.read_netrc_auth(host=settings.base_url) is not None
    except AuthenticationError:
        return True
