"""Sources of PyTorch models, and random weights that can be drawn again."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar

from oodzoo.errors import InputError
from oodzoo.zoo.model import Model
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.sources import ModelSource
from oodzoo.zoo.torch_model import Built, Module, assemble, assemble_layers
from oodzoo.zoo.torch_trainable import trainable, trainable_network
from oodzoo.zoo.trainable_model import Trainable


class TorchSource(ModelSource):
    """A source that builds modules of PyTorch; all else is the same for all of them."""

    takes_untrained: ClassVar[bool] = True

    @abstractmethod
    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a module on the CPU, with its weights unless only shapes are wanted."""

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return assemble(self.build(spec), spec, device=device, precision=precision)

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        built = self.build(specs[0])
        return [*assemble_layers(built, specs, device=device, precision=precision)]

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        return trainable(self.build(spec), spec, preprocessing)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        return trainable_network(self.build(specs[0]), specs)


def repeatable(spec: ModelSpec) -> AbstractContextManager[None]:
    """Draw the same weights each time for a model that is not pre-trained."""
    return seeded(spec) if spec.pretrained is False else nullcontext()


@contextmanager
def seeded(spec: ModelSpec) -> Iterator[None]:
    """Draw random weights with a seed that is the name of a model, without the name of a layer.

    The state of PyTorch's generator is restored.
    """
    import torch

    digest = hashlib.sha256(spec.name.partition("@")[0].encode()).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest[:4], "big"))
        yield
