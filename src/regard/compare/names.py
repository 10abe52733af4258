"""The names of the layers that are compared, for who must not wait for torch."""

from typing import Literal

LayerName = Literal[
    "plain",
    "sdpa",
    "window",
    "bigbird",
    "linformer",
    "linear",
    "performer",
    "rnn",
    "lstm",
    "gru",
    "ssru",
    "convolution",
    "mamba",
]
