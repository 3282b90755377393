"""Weights & Biases for training and reports: the x axis of all metrics, the user's settings and his key."""

import configparser
import logging
import os
from pathlib import Path
from typing import Any

from gyral.core.errors import one_line

log = logging.getLogger(__name__)

STEPS = "steps"  # the metric that is the x axis: number of optimizer steps taken
KEYLESS = ("offline", "dryrun", "disabled")  # the modes in which wandb needs no key, and sends nothing


class _Unread(property):
    """The path of the settings of the current directory, which is that of an empty file for all parts of wandb."""

    def __get__(self, settings: Any, owner: Any = None) -> Any:
        return self if settings is None else os.devnull


def user_settings() -> Any:
    """Return the user's settings of Weights & Biases.

    wandb would also read the file wandb/settings in the current directory. Somebody else may have written it: with
    `base_url`, the user's key would go to another server. Only a mode in it counts, with which nothing is sent.
    """
    import wandb

    settings: Any = wandb.Settings
    workspace: Any = vars(settings)["settings_workspace"]
    mode = _mode_here(Path(workspace.fget(settings())))
    if not isinstance(workspace, _Unread):
        settings.settings_workspace = _Unread(workspace.fget)  # for good: `wandb.Api` of some versions reads it again
    given: dict[str, Any] = {} if mode is None or "WANDB_MODE" in os.environ else {"mode": mode}
    return wandb.setup(settings(silent=True, **given)).settings


def _mode_here(path: Path) -> str | None:
    """Return the mode in a file of settings if nothing is sent with it; say in one line what else the file has."""
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(path, encoding="utf-8")
        found = dict(settings["default"]) if "default" in settings else {}
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        log.warning("%s: is not read (%s)", path, one_line(error))
        return None
    mode = found.pop("mode", "")
    if found or mode not in (*KEYLESS, ""):
        log.warning("%s: is not read; set variables such as WANDB_ENTITY instead, or use `wandb login`", path)
    return mode if mode in KEYLESS else None


def own_entities() -> set[str]:
    """Return the names of the user and of his teams, which the server of Weights & Biases knows.

    Raises:
        ConnectionError: the server does not answer, or does not take the key.
    """
    import wandb

    session = wandb.setup()  # `wandb.Api().viewer` refuses the answers of older servers
    known = (session._get_username(), session._get_entity(), *session._get_teams())
    names = {name for name in known if name is not None}
    if not names:
        raise ConnectionError("the server does not say which teams are yours")
    return names


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
