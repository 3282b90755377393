"""The ranks of the processes of a run, and the address at which they meet."""

import os

from lightning_fabric.plugins.environments import LightningEnvironment
from omegaconf import DictConfig

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError


class ClusterEnvironment(LightningEnvironment):
    """The rank of this process, and the address of the first process.

    Args:
        local_rank: rank of the process on its node. Process 0 starts the others.
        node: rank of the node.
        address, port: of the first process. None: a free port of this machine.
    """

    def __init__(self, local_rank: int = 0, node: int = 0, address: str = "127.0.0.1", port: int | None = None) -> None:
        super().__init__()
        self._local_rank, self._node, self._address = local_rank, node, address
        self._main_port = -1 if port is None else port

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return self._address

    def local_rank(self) -> int:
        return self._local_rank

    def node_rank(self) -> int:
        return self._node

    def for_peer(self, local_rank: int) -> "ClusterEnvironment":
        """Return the environment of another process of this node."""
        return ClusterEnvironment(local_rank, self._node, self._address, self.main_port)

    def teardown(self) -> None:
        """Do nothing; Lightning would remove a variable that is not set here."""


def cluster_environment(config: DictConfig) -> ClusterEnvironment:
    """Return the environment of the process that a user started, of which there is one per node.

    Raises:
        OptionError: the run has several nodes, and the environment variables do not say which of them this is.
    """
    nodes = check_integer("trainer.num_nodes", config.trainer.get("num_nodes", 1))
    if nodes == 1:
        return ClusterEnvironment()
    try:
        node, port = int(os.environ["NODE_RANK"]), int(os.environ["MASTER_PORT"])
        address = os.environ["MASTER_ADDR"]
    except (KeyError, ValueError) as error:
        raise OptionError(
            "trainer.num_nodes",
            nodes,
            "start the same command on each node, with the environment variables NODE_RANK (0, 1, …), MASTER_ADDR and"
            f" MASTER_PORT (of node 0); {error} is missing or not a number",
        ) from None
    return ClusterEnvironment(0, node, address, port)
