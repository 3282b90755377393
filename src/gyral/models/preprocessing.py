"""Preprocessing of real inputs before a model reads them: filled missing values, standardization, a mask."""

import numpy as np
import torch
from torch import Tensor, nn


class Preprocessing(nn.Module):
    """Fills missing values with the mean, standardizes the inputs, and appends which values are missing.

        filled = x, or mean where x is NaN
        output = [(filled − mean) / deviation, 1 where x is NaN, else 0]

    The mean and the deviation are buffers: checkpoints contain them, and new data are read with those of training.

    Args:
        mean, deviation: statistics of the inputs, (X,).
        standardize: whether the inputs are standardized. False: they are filled alone.
        masked: M, number of inputs whose mask is appended, the first ones. 0: no mask.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: np.ndarray, deviation: np.ndarray, *, standardize: bool, masked: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean).float())
        self.register_buffer("deviation", torch.from_numpy(deviation).float())
        self.standardize = standardize
        self.masked = masked

    @property
    def input_size(self) -> int:
        """X."""
        return len(self.mean)

    @property
    def output_size(self) -> int:
        """X + M."""
        return len(self.mean) + self.masked

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the model, (…, X + M), for inputs (…, X)."""
        missing = inputs.isnan()
        outputs = torch.where(missing, self.mean, inputs)
        if self.standardize:
            outputs = (outputs - self.mean) / self.deviation
        return torch.cat([outputs, missing[..., : self.masked].to(outputs.dtype)], dim=-1) if self.masked else outputs
