"""Layers with the interface of `torch.nn.GRU`, one per cell: `RUM(input_size, hidden_size)`."""

from gyral.nn.layers.base import Layer
from gyral.nn.layers.convolution import DynamicConv, LightConv
from gyral.nn.layers.delta import KDA, DeltaNet, DeltaProduct, GatedDeltaNet, GatedDeltaNet2
from gyral.nn.layers.fast_slow import FSRNN
from gyral.nn.layers.fast_weights import FastWeights, WeiNet
from gyral.nn.layers.gated import GRU, LSTM, ONLSTM, RNN
from gyral.nn.layers.graph import MAGE, MAGEGRU
from gyral.nn.layers.linear_attention import GLA, HGRN2, MLSTM, RWKV7, Mamba2, Mamba3, MLSTMLarge
from gyral.nn.layers.memory import DNC, LANTM, NTM
from gyral.nn.layers.nonlinear import DTRIV, M2RNN, SLSTM, ExpRNN
from gyral.nn.layers.rotations import GORU, RUM
from gyral.nn.layers.scans import LRU, RGLRU, S4D, S5, Mamba, MinGRU, MinLSTM
from gyral.nn.layers.state_tracking import PDSSM, RotationScan, SLiCE
from gyral.nn.layers.unitary import EURNN, URNN, FullURNN

__all__ = [
    "DNC",
    "DTRIV",
    "EURNN",
    "FSRNN",
    "GLA",
    "GORU",
    "GRU",
    "HGRN2",
    "KDA",
    "LANTM",
    "LRU",
    "LSTM",
    "M2RNN",
    "MAGE",
    "MAGEGRU",
    "MLSTM",
    "NTM",
    "ONLSTM",
    "PDSSM",
    "RGLRU",
    "RNN",
    "RUM",
    "RWKV7",
    "S4D",
    "S5",
    "SLSTM",
    "URNN",
    "DeltaNet",
    "DeltaProduct",
    "DynamicConv",
    "ExpRNN",
    "FastWeights",
    "FullURNN",
    "GatedDeltaNet",
    "GatedDeltaNet2",
    "Layer",
    "LightConv",
    "MLSTMLarge",
    "Mamba",
    "Mamba2",
    "Mamba3",
    "MinGRU",
    "MinLSTM",
    "RotationScan",
    "SLiCE",
    "WeiNet",
]
