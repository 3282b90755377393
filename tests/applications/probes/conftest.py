"""A run whose figures are drawn."""

import pytest
from omegaconf import OmegaConf

from gyral.runs.directory import Run, load_run
from tests.helpers.running import SMALL_RECALL, compose_config


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of which only the configuration is there."""
    directory = tmp_path_factory.mktemp("run")
    OmegaConf.save(compose_config(*SMALL_RECALL, "model=lstm"), directory / "config.yaml")
    return load_run(directory)
