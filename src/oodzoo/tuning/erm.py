"""Empirical risk minimisation as in DomainBed [1]_: its model and its update.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from oodzoo.heads.domainbed.protocol import Hyperparameters
from oodzoo.tuning.network import Network

Tensor = Any  # torch.Tensor; torch is imported when a network is


class Erm:
    """A network that is trained as by DomainBed's algorithm ERM.

    The features pass through dropout to a linear classifier. All weights are trained, with Adam
    and an L2 penalty. Batch norms keep their statistics, as in DomainBed; their scales and shifts
    are trained. Other layers that behave differently in training do so.

    Parameters
    ----------
    network : Network
        With the weights to start from.
    hyperparameters : Hyperparameters
    """

    def __init__(self, network: Network, hyperparameters: Hyperparameters) -> None:
        torch: Any = import_module("torch")
        self._network = network
        self._dropout = torch.nn.Dropout(hyperparameters.dropout)
        self._optimiser = torch.optim.Adam(
            network.parts.parameters(),
            lr=hyperparameters.lr,
            weight_decay=hyperparameters.weight_decay,
        )

    def outputs(self, batch: Tensor) -> Tensor:
        """Outputs (n, C) for images (n, 3, height, width) with values from 0 to 1."""
        return self._network.parts["head"](self._dropout(self._network.features(batch)))

    def train(self) -> None:
        """Enter training mode; batch norms stay as they are in inference."""
        torch: Any = import_module("torch")
        self._network.parts.train()
        self._dropout.train()
        for layer in self._network.parts.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.eval()

    def eval(self) -> None:
        """Enter inference mode."""
        self._network.parts.eval()
        self._dropout.eval()

    def gradients(
        self, minibatches: Sequence[tuple[Tensor, Tensor]], images_per_pass: int | None = None
    ) -> Tensor:
        """Compute the gradients of the mean loss; return the loss, still on the device."""
        torch: Any = import_module("torch")
        images = torch.cat([x for x, _ in minibatches])
        labels = torch.cat([y for _, y in minibatches])
        size = images_per_pass or len(images)
        self._optimiser.zero_grad()
        total: Any = 0.0
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            loss = torch.nn.functional.cross_entropy(self.outputs(x), y) * (len(x) / len(images))
            loss.backward()
            total = total + loss.detach()
        return total

    def step(self) -> None:
        """Update the weights with the gradients."""
        self._optimiser.step()


def erm_update(
    erm: Erm,
    minibatches: Sequence[tuple[Tensor, Tensor]],
    images_per_pass: int | None = None,
) -> Tensor:
    """Make one update, as DomainBed's ERM: a step of Adam on the mean loss of all minibatches.

    Parameters
    ----------
    erm : Erm
        In training mode.
    minibatches : sequence of (images, labels)
        One for each training domain, in their order.
    images_per_pass : int, optional
        Divide the images into several passes, to save memory; the gradients are those of one pass.

    Returns
    -------
    Tensor
        The loss before the update, still on the device.
    """
    loss = erm.gradients(minibatches, images_per_pass)
    erm.step()
    return loss
