"""Tasks: one file each, with its data, loss, metrics and how an example looks."""

import sys

from gyral.core.stand_ins import decorator, decorator_factory, definition, import_without

# Lightning asks whether a model is compiled, and counts its operations for a summary; torchmetrics imports SciPy and
# matplotlib where they are installed. These would take more than half of the time until the first step.
import_without(
    ("pytorch_lightning", "lightning_fabric", "torchmetrics"),
    {
        "torch._dynamo": {"OptimizedModule": definition, "disable": decorator},
        "torch.utils.flop_counter": {"FlopCounterMode": definition},
        "matplotlib": {},
        "matplotlib.axes": {"Axes": definition},
        "matplotlib.colors": {"Colormap": definition},
        "matplotlib.style": {"context": decorator_factory},
        "matplotlib.pyplot": {"Figure": definition, "style": lambda *_: sys.modules["matplotlib.style"]},
        "scipy": {},
        "scipy.optimize": {"linear_sum_assignment": definition},
        "scipy.signal": {"hamming": definition},
    },
)
