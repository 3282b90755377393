"""Dynamic evaluation of language models: gradient steps on a text while the text is evaluated."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.measures import perplexity_of
from gyral.core.progress import line
from gyral.data.batching import IGNORED
from gyral.data.text.windows import Windows
from gyral.models.sequence import SequenceModel
from gyral.nn.recurrent import detach

RULES = {  # default learning rate and decay of each rule
    "sgd": (0.1, 0.002),
    "rms": (5e-5, 0.002),
}
STATISTICS_ROWS = 100  # rows of the training text for the mean squared gradients


class DynamicEvaluation:
    """Adapts a trained model to the recent past of a text (Krause et al., "Dynamic evaluation", ICML 2018).

    The text is read in short windows. After a window is scored, the weights θ take a gradient step on its mean loss L
    and decay towards the trained weights θ₀:

        sgd    θ ← θ − η ∇L + λ (θ₀ − θ)                                    (their equations 4 and 7)
        rms    θ ← θ − η ∇L / (√MS + ε) + min(λ r, 1) (θ₀ − θ)              (their equations 5, 6 and 8)

    MS is the mean squared gradient of each weight over the windows of the training text, read in 100 rows, and r = √MS
    divided by the mean over the parameters of their means of √MS. Losses are scored before the step, so each prediction
    depends only on earlier tokens. Dropout is off. The defaults of `rms` come from the authors' code for AWD-LSTM on
    the Penn Treebank (benkrause/dynamic-evaluation on GitHub); choose a larger learning rate and decay for longer
    windows.

    Args:
        rule: "sgd" or "rms".
        lr: η > 0; None: 0.1 for "sgd", 0.00005 for "rms".
        decay: λ in [0, 1]; None: 0.002.
        window: tokens per gradient step.
        epsilon: ε > 0, for "rms"; a weight without a gradient has √MS = 0.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(
        self,
        rule: str,
        lr: float | None = None,
        decay: float | None = None,
        window: int = 5,
        epsilon: float = 2e-5,
    ) -> None:
        self.rule = check_choice("rule", rule, tuple(RULES))
        default_lr, default_decay = RULES[rule]
        self.lr = check_real("lr", default_lr if lr is None else lr, above=0)
        self.decay = check_real("decay", default_decay if decay is None else decay, minimum=0, maximum=1)
        self.window = check_integer("window", window)
        self.epsilon = check_real("epsilon", epsilon, above=0)

    def evaluate(self, model: SequenceModel, train: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
        """Return the loss in nats per token, the bits and the perplexity of a text. The model keeps its weights.

        Args:
            model: the trained model.
            train: (n,) tokens of the training text, for the mean squared gradients.
            tokens: (m,) tokens of the text.
        """
        parameters: list[Any] = list(model.parameters())
        trained = [parameter.detach().clone() for parameter in parameters]
        is_training = model.training
        model.eval()
        try:
            with torch.inference_mode(False), torch.enable_grad():  # Lightning tests in inference mode
                loss = self._evaluate(model, trained, train, tokens)
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, trained)
            model.train(is_training)
        return {"loss": loss, "bits": loss / math.log(2), "perplexity": perplexity_of(loss)}

    def _evaluate(self, model: SequenceModel, trained: list[Tensor], train: np.ndarray, tokens: np.ndarray) -> float:
        """Return the loss of a text in nats per token; the model keeps the weights of the last step."""
        parameters: list[Any] = list(model.parameters())
        rates, decays = self._rates(model, train)
        total, count = 0.0, 0
        windows = Windows(tokens, 1, min(self.window, len(tokens) - 1))
        for loss, predicted, gradients in _read(model, windows, "dynamic evaluation"):
            total, count = total + loss * predicted, count + predicted
            with torch.no_grad():
                distances = torch._foreach_sub(trained, parameters)
                torch._foreach_addcmul_(parameters, distances, decays)
                torch._foreach_addcmul_(parameters, gradients, rates, value=-1)
        return total / count

    def _rates(self, model: SequenceModel, train: np.ndarray) -> tuple[list[Tensor], list[Tensor]]:
        """Return the factors of the gradient and of the distance to the trained weights, for each parameter."""
        parameters = list(model.parameters())
        if self.rule == "sgd":
            return [p.new_tensor(self.lr) for p in parameters], [p.new_tensor(self.decay) for p in parameters]
        rows = min(STATISTICS_ROWS, len(train) - 1)
        windows = Windows(train, rows, min(self.window, len(train) - 1))
        squares = [torch.zeros_like(parameter) for parameter in parameters]
        for _, _, gradients in _read(model, windows, "gradient statistics"):
            torch._foreach_addcmul_(squares, gradients, gradients)
        roots = [(each / len(windows)).sqrt() for each in squares]
        mean = torch.stack([each.mean() for each in roots]).mean()
        # both are finite, also if no gradient is: the product of an infinite rate and no gradient would be NaN
        rates = [(self.lr / (each + self.epsilon)).clamp(max=torch.finfo(each.dtype).max) for each in roots]
        return rates, [(self.decay * each / mean).nan_to_num(nan=0.0).clamp(max=1) for each in roots]


def _read(model: SequenceModel, windows: Windows, description: str) -> Iterator[tuple[float, int, list[Tensor]]]:
    """Yield the mean loss of each window, its number of predicted tokens, and the gradient of each parameter."""
    parameters = list(model.parameters())
    state: Any = None
    line.begin(description, len(windows))
    for index, window in enumerate(windows):
        logits, state = model(window.inputs.to(parameters[0].device), state)
        state = detach(state)
        targets = window.targets.flatten().to(logits.device)
        loss = F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORED)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        yield loss.item(), int(window.answers.sum()), list(gradients)
        line.update(index + 1, len(windows))
