"""Tests read choices of groups without composing; they must be those that Hydra composes."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.helpers.running import CONF, compose_choices

# with defaults, nested ones, one that overrides the default of a default, and none
CHOICES = {
    "model": ["dag_rnn", "fs_rum", "rum_associative", "transformer"],
    "cell": ["dag_rnn", "fs_goru", "gru", "ntm"],
    "task": ["babi", "copy", "group", "ptb_char"],
    "optimizer": ["adam", "rmsprop"],
    "callbacks": ["default", "none"],
}


@pytest.mark.parametrize("group", CHOICES)
def test_choices_equal_those_that_hydra_composes(group: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+{group}@{name}={name}" for name in CHOICES[group]])
    for name in CHOICES[group]:
        assert compose_choices(group)[name] == OmegaConf.to_container(config[name])
