"""The strategy that averages gradients over processes, and the ranks of the processes."""

import os
from typing import Any

import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.utilities.seed import reset_seed
from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor, distributed

from gyral.core.ranks import Place
from gyral.data.batching import mix_seed
from gyral.training import compat


class ClusterEnvironment(LightningEnvironment):
    """The rank of this process, and the store by which the processes of a run find each other.

    Args:
        local_rank: rank of the process on its node, if the first process of the node starts the others.
        place: the place of this process, or of the first one of its node, among those that a launcher has started.
        address, port, prefix: of the store, and of its keys. Port 0: this process opens the store.
    """

    def __init__(
        self,
        local_rank: int = 0,
        place: Place | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        prefix: str = "",
    ) -> None:
        super().__init__()
        self._local_rank, self._place = local_rank, place
        self._launched = None if place is None or place.one_per_node else place  # it starts no others
        self._address, self._port, self._prefix = address, port, prefix
        self._store: distributed.TCPStore | None = None

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def local_rank(self) -> int:
        return self._local_rank

    def node_rank(self) -> int:
        return self._place.rank if self._place and not self._launched else 0

    def set_global_rank(self, rank: int) -> None:
        super().set_global_rank(self._launched.rank if self._launched else rank)

    def set_world_size(self, size: int) -> None:
        super().set_world_size(self._launched.size if self._launched else size)

    def for_peer(self, local_rank: int) -> "ClusterEnvironment":
        """Return the environment of another process of this node, which this process starts."""
        self.store()
        return ClusterEnvironment(local_rank, self._place, self._address, self._port, self._prefix)

    def store(self) -> distributed.Store:
        """Return the store, which process 0 of the run opens."""
        if self._store is None:
            is_master = self._port == 0
            self._store = distributed.TCPStore(self._address, self._port, is_master=is_master, wait_for_workers=False)
            self._port = self._store.port
        return distributed.PrefixStore(self._prefix, self._store)

    def devices(self, accelerator: str) -> dict[str, Any]:
        """Return the arguments of the trainer of a process that a launcher has started for one device."""
        if self._launched is None:
            return {}
        uses_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        # SLURM may show to each process the GPU of its own only
        return {"num_nodes": 1, "devices": [self._launched.local_rank % torch.cuda.device_count()] if uses_gpu else 1}

    def threads(self, processes: int) -> int:
        """Return the number of threads for each of the processes that share the cores of this node."""
        if self._launched is None:
            return max(1, torch.get_num_threads() // processes)
        # a launcher may have bound this process to its cores, which PyTorch counts
        return max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // self._launched.local_size))

    def teardown(self) -> None:
        """Do nothing; Lightning would remove a variable that is not set here."""


class DDP(DDPStrategy):
    """Lightning's DDP strategy, without its launcher and without torch's DistributedDataParallel.

    DistributedDataParallel averages gradients while others are still being computed. In backpropagation through time
    all gradients are ready only at the end, so that this saves no time. It also reorders the gradients after the first
    step, so that the sums over three or more processes are rounded differently in a resumed run, and it broadcasts
    buffers at every step.
    """

    def _configure_launcher(self) -> None:
        self._launcher = None  # `peer_processes` starts the processes

    def setup_environment(self) -> None:
        super().setup_environment()
        if self.global_rank > 0:  # dropout and zoneout differ between the rows of a batch
            torch.manual_seed(mix_seed(torch.initial_seed(), f"process {self.global_rank}"))

    def setup_distributed(self) -> None:
        reset_seed()
        self.set_world_ranks()
        if distributed.is_initialized():
            return
        assert isinstance(self.cluster_environment, ClusterEnvironment)
        self._process_group_backend = self._get_process_group_backend()
        distributed.init_process_group(
            self._process_group_backend,
            store=self.cluster_environment.store(),  # Lightning would open one by environment variables
            rank=self.global_rank,
            world_size=self.world_size,
            timeout=self._timeout,
            device_id=None if self.root_device.type == "cpu" else self.root_device,
        )

    def configure_ddp(self) -> None:
        compat.sync_module_states(self.model)

    def post_backward(self, closure_loss: Tensor) -> None:
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        mean = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(mean)
        mean /= self.world_size
        parts = mean.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


StrategyRegistry.register("ddp", DDP, override=True)  # Lightning's "auto" uses this name too
