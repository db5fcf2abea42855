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
from typing import Any, Literal, cast

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, optional_package, torchvision_installed
from oodzoo.core.text import one_line
from oodzoo.zoo.hub import hub_access
from oodzoo.zoo.model import Model, ModelInfo, Outputs
from oodzoo.zoo.preprocessing import Preprocessing, TextPreprocessing
from oodzoo.zoo.sources import ModelSource, path_of, require_not_here, weight_files
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.torch_model import (
    Module,
    Tensor,
    count_parameters,
    one_torch_thread,
    refuse_sha256,
    torch_device,
    weights_digest,
)
from oodzoo.zoo.torch_model import cast as cast_weights
from oodzoo.zoo.weights import Weights, hub_card, hub_weights, local_weights

_EXTRA = _OWNER = "sentence-transformers"
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


class SentenceSource(ModelSource):
    """Text encoders of sentence-transformers."""

    kind = "sentence-transformers"
    packages = ("sentence-transformers", "torch", "transformers")
    extra = _EXTRA

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return load(spec, device=device, precision=precision)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return path_of(spec, spec.identifier)

    def is_model(self, path: Path) -> bool:
        return (path / "modules.json").is_file()

    def files(self, path: Path) -> list[Path]:
        """The files of the folder, and of the folders that its modules.json names."""
        modules = json.loads((path / "modules.json").read_text(encoding="utf-8"))
        folders = dict.fromkeys([path, *(path / str(module["path"]) for module in modules)])
        return [file for folder in folders for file in weight_files(folder)]

    def moved(self, spec: ModelSpec, path: str) -> str:
        return f"./{path}"

    def names(self, pattern: str) -> list[str]:
        raise InputError(
            f"the zoo 'sentence-transformers/{pattern}' has a wildcard, and the models of "
            "sentence-transformers are not listed anywhere; name them"
        )

    def licence(self, spec: ModelSpec) -> str | None:
        return None if local_path(spec) is not None else hub_card(_repository(spec)).licence

    def weights(self, spec: ModelSpec) -> Weights:
        if (path := local_path(spec)) is not None:
            return local_weights(path)
        repository = _repository(spec)
        return hub_weights(repository, _FILES, hub_card(repository).size)


def _repository(spec: ModelSpec) -> str:
    """The repository on the hub; a name without an owner is one of sentence-transformers itself."""
    return spec.identifier if "/" in spec.identifier else f"{_OWNER}/{spec.identifier}"


def load(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> SentenceModel:
    """Load a text encoder from a folder, the cache of Hugging Face or the hub."""
    refuse_sha256(spec)
    for key in _NOT_OF_TEXT:
        if getattr(spec, key) is not None:
            raise InputError(
                f"model {spec.name!r}: {spec.source} takes text and has no {key}; remove it"
            )
    encoder = _encoder(spec)
    torch = optional_package("torch", extra=_EXTRA, purpose=f"model {spec.name!r}")
    parts = (_identity(encoder), weights_digest(encoder))
    info = ModelInfo(
        name=spec.name,
        preprocessing=cast(Preprocessing, _preprocessing(encoder)),
        feature_dim=0,
        n_logits=None,
        parameters=count_parameters(encoder),
        fingerprint=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
        pretraining=spec.pretraining,
        licence=spec.licence,
    )
    where = torch_device(device)
    encoder.eval().requires_grad_(False)
    cast_weights(encoder, getattr(torch, precision)).to(where)
    model = SentenceModel(encoder, info, where)
    model.info = info.measured(_run_once(model, device, precision), spec.feature_dim)
    return model


def _encoder(spec: ModelSpec) -> Module:
    purpose = f"model {spec.name!r} (sentence-transformers)"
    optional_package("torch", extra=_EXTRA, purpose=purpose)
    if torchvision_installed():  # transformers imports it if installed, even if it is broken
        import_torchvision(extra=_EXTRA, purpose=purpose)
    library = optional_package("sentence_transformers", extra=_EXTRA, purpose=purpose)
    local = local_path(spec)
    if local is None:
        require_not_here(spec)
    name = spec.identifier if local is None else str(local)
    if local is not None and not (local / "modules.json").is_file():
        raise InputError(
            f"model {spec.name!r}: {str(local)!r} is not a folder of sentence-transformers: it has "
            "no modules.json; save it with SentenceTransformer.save"
        )
    with hub_access(spec):
        return library.SentenceTransformer(name, device="cpu", trust_remote_code=False)


def _preprocessing(encoder: Module) -> TextPreprocessing:
    prompt = encoder.prompts.get(encoder.default_prompt_name) or ""
    return TextPreprocessing(max_tokens=encoder.max_seq_length, prompt=prompt)


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


def _run_once(model: SentenceModel, device: str, precision: str) -> Outputs:
    try:
        outputs = model([_PROBE, ""])
    except Exception as error:
        raise InputError(
            f"model {model.info.name!r} cannot run on a text on {device} in {precision}: "
            f"{one_line(error)}"
        ) from error
    if not np.isfinite(outputs.features).all():
        raise InputError(f"model {model.info.name!r} returns NaN or infinite features")
    return outputs
