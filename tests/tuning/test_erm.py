"""The update of DomainBed's ERM, against a transcription of its code."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.tuning.small import CLASSES, DIM, MEAN, PREPROCESSING, SIZE, STD, features

from oodzoo.heads.domainbed.protocol import Hyperparameters
from oodzoo.tuning.erm import Erm, erm_update
from oodzoo.tuning.network import Network
from oodzoo.zoo.model import Trainable

torch = pytest.importorskip("torch")


def network(module: Any) -> Network:
    return Network(
        Trainable("small", module, PREPROCESSING, DIM, lambda file: None), CLASSES, "cpu"
    )


def minibatches(step: int, n_domains: int = 3, size: int = 4) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(step)
    return [
        (
            torch.rand(size, 3, SIZE, SIZE, generator=generator),
            torch.randint(CLASSES, (size,), generator=generator),
        )
        for _ in range(n_domains)
    ]


def normalised(images: Any) -> Any:
    return (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5])
def test_updates_of_domainbed(weight_decay: float, dropout: float) -> None:
    oracle = pytest.importorskip("tests.oracles.domainbed_erm")
    hparams = {"lr": 1e-2, "weight_decay": weight_decay, "resnet_dropout": dropout}
    module = features()
    twin = oracle.ERM(oracle.Featurizer(copy.deepcopy(module), DIM, hparams), CLASSES, hparams)
    ours = network(module)
    ours.load({f"head.{name}": each for name, each in twin.classifier.named_parameters()})
    erm = Erm(ours, Hyperparameters(1e-2, weight_decay, 4, dropout))
    erm.train()
    twin.train()
    losses = []
    for step in range(20):
        batches = minibatches(step)
        torch.manual_seed(step)
        loss = erm_update(erm, batches)
        torch.manual_seed(step)
        expected = twin.update([(normalised(x), y) for x, y in batches])
        losses.append(float(loss))
        assert losses[-1] == pytest.approx(expected["loss"], abs=1e-6)
        if step % 5 == 0:  # accuracies are computed in between
            erm.eval()
            found = [erm.outputs(x).argmax(1).eq(y).float().mean() for x, y in batches]
            erm.train()
            for (x, y), accuracy in zip(batches, found, strict=True):
                assert oracle.accuracy(twin, [(normalised(x), y)]) == pytest.approx(float(accuracy))
    state = {name: each.detach() for name, each in ours.parts.state_dict().items()}
    for name, each in twin.featurizer.network.state_dict().items():
        torch.testing.assert_close(state[f"features.{name}"], each, rtol=0, atol=1e-6)
    for name, each in twin.classifier.state_dict().items():
        torch.testing.assert_close(state[f"head.{name}"], each, rtol=0, atol=1e-6)
    assert losses[-1] != losses[0]


def test_passes_have_the_gradients_of_one() -> None:
    whole, parts = network(features()), network(features())
    parts.load(whole.weights())
    for size, each in ((None, whole), (5, parts)):
        erm = Erm(each, Hyperparameters(lr=1e-2))
        erm.train()
        losses = [float(erm_update(erm, minibatches(step), size)) for step in range(5)]
        if size is None:
            expected = losses
    assert losses == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(parts.weights(), whole.weights(), rtol=0, atol=1e-4)
