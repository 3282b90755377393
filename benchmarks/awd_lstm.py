"""A training step of AWD-LSTM's recipe, in comparison with a bare loop in torch of the same layers and optimizer.

Usage: python -m benchmarks.awd_lstm [key=value …]

  row=awd_lstm,on_lstm     rows of conf/table/on_lstm_paper_lm.yaml; default: both
  steps=5                  training steps per round
  rounds=3                 a time is the median over the rounds
  json=path                append one line of JSON per row to this file

Every other key is an option of `gyral train`: threads=1, task.batch_size=40.
The bare loop has the layers of torch.nn (ON-LSTM: of Gyral), dropout of words, units and recurrent weights, activation
regularization, clipping, the learning rate of the window, SGD, and the average of the weights.
Exit status: 0 success, 1 the two loops end with different weights (with layers of torch: without dropout), 2 a key or
value is not allowed.
"""

import sys
from itertools import pairwise
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from benchmarks import train_loop
from benchmarks.train_loop import BareLoop, Settings
from gyral.core.checks import check_choice
from gyral.core.errors import UserError
from gyral.data.batching import IGNORED
from gyral.data.text.windows import Window
from gyral.nn.recurrent import detach
from gyral.tasks.text import TextTask

MODELS = {"awd_lstm": "lstm", "on_lstm": "on_lstm"}
ROWS = tuple(MODELS)
DROPOUTS = ("input_dropout", "dropout", "output_dropout", "weight_drop", "embedding_dropout")


class TorchModel(nn.Module):
    """AWD-LSTM of torch.nn layers, with the weights of a model of Gyral."""

    def __init__(self, config: DictConfig, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.options = config.model
        sizes = [config.model.embedding_size, *config.model.layer_sizes]
        self.embedding = nn.Embedding(*weights["model.embedding.weight"].shape)
        self.layers = nn.ModuleList(nn.LSTM(width, size) for width, size in pairwise(sizes))
        self.bias = nn.Parameter(weights["model.head.bias"].clone())
        with torch.no_grad():
            self.embedding.weight.copy_(weights["model.embedding.weight"])
            for index, layer in enumerate(self.layers):
                prefix = f"model.recurrent.cells.{index}.layer."
                for name, parameter in layer.named_parameters():
                    held = f"{prefix}parametrizations.{name}.original"
                    parameter.copy_(weights[held if held in weights else prefix + name])

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor, Tensor]:
        """Return logits (T, B, V), the state, and the last layer's outputs before and after dropout."""
        options = self.options
        words = F.dropout(torch.ones(len(self.embedding.weight), 1), options.embedding_dropout)
        outputs = F.embedding(tokens, self.embedding.weight) * words[tokens]
        final = []
        for index, layer in enumerate(self.layers):
            hidden = _locked(outputs, options.dropout if index else options.input_dropout)
            weights: Any = dict(layer.named_parameters())
            weights["weight_hh_l0"] = F.dropout(weights["weight_hh_l0"], options.weight_drop)
            zeros = hidden.new_zeros(1, tokens.shape[1], weights["weight_hh_l0"].shape[1])
            initial = state[index] if state else (zeros, zeros)
            arguments = list(weights.values()), True, 1, 0.0, True, False, False
            outputs, *last = torch.lstm(hidden, initial, *arguments)
            final.append([leaf.detach() for leaf in last])
        dropped = _locked(outputs, options.output_dropout)
        return F.linear(dropped, self.embedding.weight, self.bias), final, outputs, dropped


def _locked(hidden: Tensor, probability: float) -> Tensor:
    return hidden * F.dropout(torch.ones_like(hidden[:1]), probability)


class RecipeLoop(BareLoop):
    """A plain training loop of the recipe; the layers of awd_lstm are those of torch."""

    def __init__(self, config: DictConfig, task: TextTask) -> None:
        super().__init__(config, task)
        self.window = config.task.window
        self.factors = config.task.activation_regularization, config.task.temporal_regularization
        self.model = TorchModel(config, task.state_dict()) if "lstm.LSTMCell" in config.model.cell["_target_"] else None
        self.parameters = list((self.model or self.task).parameters())
        self.rate = config.optimizer.lr
        self.optimizer = torch.optim.SGD(self.parameters, self.rate, weight_decay=config.optimizer.weight_decay)
        self.averages = [parameter.detach().clone() for parameter in self.parameters]
        self.state: Any = None
        self.steps = 0
        # torch's layers draw their masks in another order
        self.is_comparable = self.model is None or not any(config.model[name] for name in DROPOUTS)

    def _forward(self, batch: Window) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits and the last layer's outputs before and after dropout."""
        state = self.state if batch.continues else None
        if self.model is not None:
            logits, self.state, outputs, dropped = self.model(batch.inputs.T, state)
            return logits.transpose(0, 1), outputs, dropped
        model = self.task.model
        outputs, vectors, state = model.run(batch.inputs, state)
        self.state = detach(state)
        dropped = model.output_dropout(outputs)
        return model.read_out(dropped, vectors), outputs, dropped

    def train(self, batches: list[Any]) -> None:
        for batch in batches:
            logits, outputs, dropped = self._forward(batch)
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
            loss = loss + self.factors[0] * dropped.pow(2).mean()
            loss = loss + self.factors[1] * (outputs[1:] - outputs[:-1]).pow(2).mean()
            loss.backward()
            clip_grad_norm_(self.parameters, self.clip)
            self.optimizer.param_groups[0]["lr"] = self.rate * batch.inputs.shape[1] / self.window
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1
            weights = [parameter.detach() for parameter in self.parameters]
            torch._foreach_lerp_(self.averages, weights, 1 / self.steps)

    def matches(self, task: Any) -> bool:
        if self.model is None:
            return super().matches(task)
        own = [self.model.embedding.weight, self.model.bias, *self.model.layers.parameters()]
        recipe = [task.model.embedding.weight, task.model.head.bias]
        for cell in task.model.recurrent.cells:  # a weight with dropout is listed after the others
            named = {
                name.split(".")[-2] if "original" in name else name: p for name, p in cell.layer.named_parameters()
            }
            recipe += [named[name] for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
        pairs = zip(recipe, own, strict=True)
        return not self.is_comparable or all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


def main(arguments: list[str]) -> int:
    """Measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        chosen = [argument.removeprefix("row=") for argument in arguments if argument.startswith("row=")]
        rows = [check_choice("row", row, ROWS) for row in (chosen[-1].split(",") if chosen else ROWS)]
        given = [argument for argument in arguments if not argument.startswith("row=")]
        counts = {name: f"{name}={count}" for name, count in (("steps", 5), ("rounds", 3))}
        settings = train_loop.parse([*counts.values(), *given, "task=ptb_word"])
        figures = [_measure(row, settings) for row in rows]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    found = [row for row in figures if row is not None]
    if len(found) < len(rows):
        print("No figures: without dropout, training and the bare loop end with different weights", file=sys.stderr)
        return 1
    train_loop.report(found, train_loop.provenance(settings), settings.json)
    return 0


def _measure(row: str, settings: Settings) -> dict[str, Any] | None:
    """Return the figures of a row; None if the loops end with different weights, without or with dropout."""
    averaged = f"experiment=on_lstm_paper/lm/{row}", "callbacks.averaging.start=0"
    options = (*averaged, f"trainer.log_every_n_steps={settings.steps}", *settings.overrides)
    plain = [f"model.{name}=0" for name in DROPOUTS]
    compared = settings._replace(steps=1, rounds=2, overrides=(*options, "trainer.log_every_n_steps=1", *plain))
    measured = settings._replace(overrides=options)
    found = None
    for each in (compared, measured):
        config = train_loop.compose_run("", MODELS[row], each)
        found = train_loop.measure("", MODELS[row], config, each, RecipeLoop)
        if found is None:
            return None
    assert found is not None
    return {**found, "case": row, "hidden": "-".join(map(str, config.model.layer_sizes))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
