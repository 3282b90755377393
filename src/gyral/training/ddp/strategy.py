"""The strategy that averages gradients over processes."""

import torch
from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor, distributed

from gyral.data.batching import mix_seed
from gyral.training import compat


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
