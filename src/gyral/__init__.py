"""Gyral: recurrent memory cells and layers, experiments and their reports.

The names of `__all__` are imported on first access, so that `from gyral import RUM` imports neither Hydra nor
Lightning, and `gyral.runs` and `gyral.compose` no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gyral.cells.base import RecurrentCell
    from gyral.cells.dnc import DNCCell
    from gyral.cells.dynamic_conv import DynamicConvCell
    from gyral.cells.eurnn import EURNNCell
    from gyral.cells.external import ExternalCell
    from gyral.cells.fast_weights import FastWeightsCell
    from gyral.cells.fs_rnn import FSRNNCell
    from gyral.cells.full_urnn import FullURNNCell
    from gyral.cells.goru import GORUCell
    from gyral.cells.gru import GRUCell
    from gyral.cells.inputs import LinkedInputs, MaskedInputs
    from gyral.cells.lantm import LANTMCell
    from gyral.cells.light_conv import LightConvCell
    from gyral.cells.lstm import LSTMCell
    from gyral.cells.mage import MAGECell
    from gyral.cells.mage_gru import MAGEGRUCell
    from gyral.cells.ntm import NTMCell
    from gyral.cells.on_lstm import ONLSTMCell
    from gyral.cells.rnn import RNNCell
    from gyral.cells.rum import RUMCell
    from gyral.cells.urnn import URNNCell
    from gyral.cells.weinet import WeiNetCell
    from gyral.config.composition import compose
    from gyral.core.edges import Edges
    from gyral.nn.layers import (
        DNC,
        EURNN,
        FSRNN,
        GORU,
        GRU,
        LANTM,
        LSTM,
        MAGE,
        MAGEGRU,
        NTM,
        ONLSTM,
        RNN,
        RUM,
        URNN,
        DynamicConv,
        FastWeights,
        FullURNN,
        LightConv,
        WeiNet,
    )
    from gyral.nn.recurrent import Recurrent
    from gyral.runs.table import list_runs as runs
    from gyral.train import train_from_python as train
    from gyral.training.build import build, load

_MODULES = {
    "gyral.cells.base": ("RecurrentCell",),
    "gyral.cells.dnc": ("DNCCell",),
    "gyral.cells.dynamic_conv": ("DynamicConvCell",),
    "gyral.cells.eurnn": ("EURNNCell",),
    "gyral.cells.external": ("ExternalCell",),
    "gyral.cells.fast_weights": ("FastWeightsCell",),
    "gyral.cells.fs_rnn": ("FSRNNCell",),
    "gyral.cells.full_urnn": ("FullURNNCell",),
    "gyral.cells.goru": ("GORUCell",),
    "gyral.cells.gru": ("GRUCell",),
    "gyral.cells.inputs": ("LinkedInputs", "MaskedInputs"),
    "gyral.cells.lantm": ("LANTMCell",),
    "gyral.cells.light_conv": ("LightConvCell",),
    "gyral.cells.lstm": ("LSTMCell",),
    "gyral.cells.mage": ("MAGECell",),
    "gyral.cells.mage_gru": ("MAGEGRUCell",),
    "gyral.cells.ntm": ("NTMCell",),
    "gyral.cells.on_lstm": ("ONLSTMCell",),
    "gyral.cells.rnn": ("RNNCell",),
    "gyral.cells.rum": ("RUMCell",),
    "gyral.cells.urnn": ("URNNCell",),
    "gyral.cells.weinet": ("WeiNetCell",),
    "gyral.config.composition": ("compose",),
    "gyral.core.edges": ("Edges",),
    "gyral.nn.layers": (
        "DNC",
        "DynamicConv",
        "EURNN",
        "FSRNN",
        "FastWeights",
        "FullURNN",
        "GORU",
        "GRU",
        "LANTM",
        "LSTM",
        "LightConv",
        "MAGE",
        "MAGEGRU",
        "NTM",
        "ONLSTM",
        "RNN",
        "RUM",
        "URNN",
        "WeiNet",
    ),
    "gyral.nn.recurrent": ("Recurrent",),
    "gyral.training.build": ("build", "load"),
}
_FUNCTIONS = ("runs", "train")  # modules that can be called: importing a submodule would replace a function by it
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "DNC",
    "EURNN",
    "FSRNN",
    "GORU",
    "GRU",
    "LANTM",
    "LSTM",
    "MAGE",
    "MAGEGRU",
    "NTM",
    "ONLSTM",
    "RNN",
    "RUM",
    "URNN",
    "DNCCell",
    "DynamicConv",
    "DynamicConvCell",
    "EURNNCell",
    "Edges",
    "ExternalCell",
    "FSRNNCell",
    "FastWeights",
    "FastWeightsCell",
    "FullURNN",
    "FullURNNCell",
    "GORUCell",
    "GRUCell",
    "LANTMCell",
    "LSTMCell",
    "LightConv",
    "LightConvCell",
    "LinkedInputs",
    "MAGECell",
    "MAGEGRUCell",
    "MaskedInputs",
    "NTMCell",
    "ONLSTMCell",
    "RNNCell",
    "RUMCell",
    "Recurrent",
    "RecurrentCell",
    "URNNCell",
    "WeiNet",
    "WeiNetCell",
    "build",
    "compose",
    "load",
    "runs",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return import_module(f"gyral.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gyral' has no attribute '{name}'")
    globals()[name] = value = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
