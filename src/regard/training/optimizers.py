"""Adam and AdamW in torch's fused form, with weight decay on matrices only."""

import torch
from torch import nn

from regard.training.config import AdamConfig, AdamWConfig, OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of a model's trainable parameters; the loop sets its learning rate.

    Vectors (biases and norm gains) are never decayed: shrinking them does not make the model
    simpler, only worse.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match config:
        case AdamConfig():
            return torch.optim.Adam(
                parameters, lr=0.0, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
            )
        case AdamWConfig():
            matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
            vectors = [parameter for parameter in parameters if parameter.ndim < 2]
            groups = [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ]
            return torch.optim.AdamW(
                [group for group in groups if group["params"]],
                lr=0.0,
                betas=(config.beta1, config.beta2),
                eps=config.eps,
                fused=True,
            )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group of parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate
