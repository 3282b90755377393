"""Handwritten digits, read pixel by pixel: 8 × 8 pixels are 64 steps.

An example; darker pixels have denser signs:

    input         .*@+.     #@**@:   -@:  ++   =#   +*   *+   #+   +#  :#-   :@=*%.    .*@=
    target      0
"""

from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.core.extras import import_extra
from gyral.core.options import NonNegativeInt
from gyral.data.batching import Batch, mix_seed
from gyral.models.attention import LastStep
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import RowData
from gyral.tasks.data_task import DataTask

DIGITS, PIXELS, BRIGHTEST = 10, 64, 16
SIZES = {"train": 1097, "val": 200, "test": 500}
SHADES = " .:-=+*#%@"


@cache
def load_images() -> Tensor:
    """Return the pixels, 0 to 16, and in the last column the digits of all images: (1797, 65).

    Raises:
        UserError: scikit-learn is not installed.
    """
    import_extra("sklearn", "task=digits", "digits")
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    return torch.from_numpy(np.column_stack([pixels, classes]).astype(np.uint8))


class DigitsData(RowData):
    """The 1,797 images of scikit-learn's `load_digits`, in a fixed random split: 1,097 for training, 200, and 500.

    The split is random because images that are close in the data set are more similar than others.

    Args:
        permuted: whether the pixels are in a random order, the same for all images.
        permutation_seed: seed of this order.
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.RowData`.

    Raises:
        UserError: an option is out of bounds, or scikit-learn is not installed.
    """

    permuted: bool = False
    permutation_seed: NonNegativeInt = 0

    def __post_init__(self) -> None:
        self.order = torch.arange(PIXELS)
        if self.permuted:
            generator = torch.Generator().manual_seed(mix_seed(self.permutation_seed, "pixels"))
            self.order = torch.randperm(PIXELS, generator=generator)
        images = load_images()
        shuffled = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(mix_seed(0, "split")))]
        self._rows = dict(zip(SIZES, shuffled.split(list(SIZES.values())), strict=True))

    def rows(self, split: str) -> Tensor:
        """Return the pixels, 0 to 16, and in the last column the digits of a split: (n, 65)."""
        return self._rows[split]

    def assemble(self, rows: Tensor) -> Batch:
        pixels = rows[:, :PIXELS][:, self.order].float() / BRIGHTEST
        return Batch(pixels.unsqueeze(-1), rows[:, PIXELS].long())


class DigitsTask(DataTask[DigitsData]):
    """Classification of handwritten digits from their pixels in a sequence, after Le et al. (2015, arXiv:1504.00941).

    They use the 784 pixels of MNIST; this task uses the smaller images that scikit-learn contains. Each step is the
    brightness of a pixel in [0, 1], from left to right and from top to bottom, or in a fixed random order. The model
    predicts the digit at the last step. The baseline is the loss of a predictor that knows only
    the frequencies of the digits in the training split.
    """

    data_class = DigitsData

    @classmethod
    def arguments(cls, data: DigitsData) -> dict[str, Any]:
        return {
            "input_size": 1,
            "output_size": DIGITS,
            "readout": LastStep,
            "baseline": partial(_baseline, data),
            "max_writes": PIXELS,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        brightness = batch.inputs[row, :, 0].tolist()
        signs = "".join(SHADES[round(value * (len(SHADES) - 1))] for value in brightness)
        return "\n".join(
            (
                f"input       {signs}",
                f"target      {batch.targets[row].item()}",
                f"prediction  {predicted[row].item()}",
            )
        )


def _baseline(data: DigitsData, split: str) -> float:
    train, found = (data.rows(each)[:, PIXELS].numpy() for each in ("train", split))
    return frequency_loss(train, found, DIGITS)
