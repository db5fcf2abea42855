"""sentence-transformers text encoders: `sentence-transformers/<name>`, or `…/./folder` on disk.

Features are the sentence embeddings of `SentenceTransformer.encode`, with the model's default
prompt if it has one, and normalised only if the model itself does so. There are no logits. Models
of images and text, such as CLIP, take text here; their image towers are those of the sources
`open_clip` and `hf`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal
from typing import cast as typed

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Model, ModelInfo, Outputs
from oodzoo.zoo.preprocessing import Preprocessing, TextPreprocessing
from oodzoo.zoo.sources.torch import HubSource, refuse_sha256
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import (
    Module,
    Tensor,
    cast,
    count_parameters,
    one_torch_thread,
    torch_device,
    weights_digest,
)

_FILES = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")
_PROBE = "The quick Brown-fox, naïve & 3.14: 犬 jumps_over #42!"
"""Its tokens tell tokenizers apart."""
_NOT_OF_TEXT = ("input_size", "mean", "std", "features", "logits")


class SentenceModel(Model):
    """A text encoder: `prepare` takes a list of strings."""

    modality: Literal["image", "text"] = "text"

    def __init__(self, encoder: Module, info: ModelInfo, device: Any) -> None:
        self.info = info
        self.on_cpu = device.type == "cpu"
        self._encoder = encoder

    def one_thread(self) -> AbstractContextManager[None]:
        return one_torch_thread()

    def prepare(self, texts: Sequence[str]) -> list[str]:
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"model {self.info.name!r} takes a list of strings, got {texts!r:.60}")
        return list(texts)

    def launch(self, prepared: list[str]) -> Tensor:
        return self._encoder.encode(
            prepared,
            batch_size=max(1, len(prepared)),
            show_progress_bar=False,
            convert_to_tensor=True,
        )

    def collect(self, launched: Tensor) -> Outputs:
        features = launched.float().cpu().numpy().reshape(len(launched), -1)
        return Outputs(features.astype(np.float32, copy=False), None)


class SentenceSource(HubSource):
    """Text encoders of sentence-transformers."""

    kind = extra = "sentence-transformers"
    packages = ("sentence-transformers", "torch", "transformers")
    module = "sentence_transformers"
    marker = "modules.json"

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        """Load a text encoder from a folder, the cache of Hugging Face or the hub."""
        refuse_sha256(spec)
        for key in _NOT_OF_TEXT:
            if getattr(spec, key) is not None:
                raise InputError(
                    f"model {spec.name!r}: {spec.source} takes text and has no {key}; remove it"
                )
        library = self.library(f"model {spec.name!r} (sentence-transformers)")
        checkpoint = self.checkpoint(
            spec,
            "is not a folder of sentence-transformers: it has no modules.json; save it with "
            "SentenceTransformer.save",
        )
        with self.access(spec):
            encoder = library.SentenceTransformer(checkpoint, device="cpu", trust_remote_code=False)
        prompt = encoder.prompts.get(encoder.default_prompt_name) or ""
        preprocessing = TextPreprocessing(max_tokens=encoder.max_seq_length, prompt=prompt)
        parts = (_identity(encoder), weights_digest(encoder))
        info = ModelInfo(
            name=spec.name,
            preprocessing=typed(Preprocessing, preprocessing),
            parameters=count_parameters(encoder),
            fingerprint=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
            pretraining=spec.pretraining,
            licence=spec.licence,
        )
        torch = optional_package("torch", extra=self.extra, purpose=f"model {spec.name!r}")
        where = torch_device(device)
        encoder.eval().requires_grad_(False)
        cast(encoder, getattr(torch, precision)).to(where)
        model = SentenceModel(encoder, info, where)
        try:
            outputs = model([_PROBE, ""])
        except Exception as error:
            raise InputError(
                f"model {spec.name!r} cannot run on a text on {device} in {precision}: "
                f"{one_line(error)}"
            ) from error
        if not np.isfinite(outputs.features).all():
            raise InputError(f"model {spec.name!r} returns NaN or infinite features")
        model.info = info.measured(outputs, spec.feature_dim)
        return model

    def files(self, path: Path) -> list[Path]:
        """The files of the folder, and of the folders that its modules.json names."""
        modules = json.loads((path / "modules.json").read_text(encoding="utf-8"))
        folders = dict.fromkeys([path, *(path / str(module["path"]) for module in modules)])
        return [file for folder in folders for file in super(SentenceSource, self).files(folder)]

    def names(self, pattern: str) -> list[str]:
        raise InputError(
            f"the zoo 'sentence-transformers/{pattern}' has a wildcard, and the models of "
            "sentence-transformers are not listed anywhere; name them"
        )

    def repository(self, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
        """A name without an owner is one of sentence-transformers itself."""
        has_owner = "/" in spec.identifier
        return spec.identifier if has_owner else f"{self.kind}/{spec.identifier}", _FILES


def _identity(encoder: Module) -> str:
    """What determines the embeddings besides the weights; see :class:`Built`."""
    steps = [
        {
            "class": type(module).__name__,
            "pooling": getattr(module, "pooling_mode", None),
            "include_prompt": getattr(module, "include_prompt", None),
            "activation": type(getattr(module, "activation_function", None)).__name__,
        }
        for module in encoder
    ]
    tokens = encoder.tokenizer.encode(_PROBE)
    ids = getattr(tokens, "ids", tokens)  # an object in static models
    stated = [steps, [int(each) for each in ids], getattr(encoder, "truncate_dim", None)]
    return f"sentence-transformers {json.dumps(stated)}"
