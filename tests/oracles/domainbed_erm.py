"""DomainBed's ERM, transcribed from domainbed/algorithms.py and domainbed/networks.py.

`Featurizer` is its class ResNet with a given network in place of torchvision's ResNet.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
nn: Any = torch.nn
F: Any = torch.nn.functional


class Featurizer(nn.Module):  # type: ignore[misc]
    """A network with frozen batch norms and dropout."""

    def __init__(self, network: Any, n_outputs: int, hparams: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.n_outputs = n_outputs
        self.freeze_bn()
        self.hparams = hparams
        self.dropout = nn.Dropout(hparams["resnet_dropout"])

    def forward(self, x: Any) -> Any:
        """Encode x into a feature vector of size n_outputs."""
        return self.dropout(self.network(x))

    def train(self, mode: bool = True) -> None:
        """Freeze the batch norms."""
        super().train(mode)
        self.freeze_bn()

    def freeze_bn(self) -> None:
        for m in self.network.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()


class ERM(nn.Module):  # type: ignore[misc]
    """Empirical risk minimisation."""

    def __init__(self, featurizer: Featurizer, num_classes: int, hparams: dict[str, Any]) -> None:
        super().__init__()
        self.hparams = hparams
        self.featurizer = featurizer
        self.classifier = nn.Linear(self.featurizer.n_outputs, num_classes)
        self.network = nn.Sequential(self.featurizer, self.classifier)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self.hparams["lr"],
            weight_decay=self.hparams["weight_decay"],
        )

    def update(self, minibatches: Any, unlabeled: Any = None) -> dict[str, float]:
        all_x = torch.cat([x for x, y in minibatches])
        all_y = torch.cat([y for x, y in minibatches])
        loss = F.cross_entropy(self.predict(all_x), all_y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}

    def predict(self, x: Any) -> Any:
        return self.network(x)


def accuracy(network: Any, batches: Any) -> float:
    """Of domainbed/lib/misc.py, with all weights one."""
    correct = 0.0
    total = 0.0
    network.eval()
    with torch.no_grad():
        for x, y in batches:
            p = network.predict(x)
            batch_weights = torch.ones(len(x))
            correct += (p.argmax(1).eq(y).float() * batch_weights).sum().item()
            total += batch_weights.sum().item()
    network.train()
    return correct / total
