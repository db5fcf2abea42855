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
from oodzoo.zoo.sources import ModelSource
from oodzoo.zoo.torch_model import Built, assemble, assemble_layers


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
