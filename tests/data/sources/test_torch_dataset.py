"""Data sets of PyTorch and torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.sources.vision import torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode

torch: Any = pytest.importorskip("torch")
data_sets = torchvision("datasets")
transforms = torchvision("transforms")
ConcatDataset: Any = torch.utils.data.ConcatDataset
Subset: Any = torch.utils.data.Subset

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 3, 6, 7), np.uint8)


class Environments(torch.utils.data.Dataset):  # type: ignore[misc]
    """As DomainBed's MultipleDomainDataset."""

    ENVIRONMENTS: tuple[str, ...] = ("D", "N")

    def __init__(self, *environments: Any) -> None:
        self.datasets = list(environments)

    def __getitem__(self, index: int) -> Any:
        return self.datasets[index]

    def __len__(self) -> int:
        return len(self.datasets)


def folders(photos: Path, **options: Any) -> list[Any]:
    return [data_sets.ImageFolder(photos / domain, **options) for domain in ("day", "night")]


def tensors(labels: list[int]) -> Any:
    return torch.utils.data.TensorDataset(torch.from_numpy(PIXELS), torch.tensor(labels))


# --- files ------------------------------------------------------------------------------------


def test_image_folders_are_the_folder(photos: Path) -> None:
    random = transforms.Compose([transforms.RandomCrop(2), transforms.ToTensor()])
    day, night = folders(photos, transform=random)
    data = ImageDomains(ConcatDataset([day, night]), domains=["day"] * 4 + ["night"] * 4)
    expected = ImageDomains(photos)
    assert data.samples == expected.samples
    assert data.digests == expected.digests
    assert data.files == expected.files


def test_one_image_folder_with_domains(photos: Path) -> None:
    data = ImageDomains(data_sets.ImageFolder(photos), domains=["a", "b"] * 4)
    assert data.classes == ("day", "night")
    assert data.root == photos
    assert {s.path for s in data} == {s.path for s in ImageDomains(photos)}


def test_subsets_keep_the_files(photos: Path) -> None:
    both = ConcatDataset(folders(photos))
    part = Subset(Subset(both, [7, 5, 3, 1, 0]), torch.tensor([0, 1, 2, 3]))
    data = ImageDomains(part, domains=["night", "night", "day", "day"])
    paths = [s.path for s in data]
    assert paths == ["day/cat/2.png", "day/dog/2.png", "night/cat/2.png", "night/dog/2.png"]
    assert set(data.digests) < set(ImageDomains(photos).digests)


def test_an_image_twice_is_refused(photos: Path) -> None:
    part = Subset(ConcatDataset(folders(photos)), [0, 0, 7])
    with pytest.raises(InputError, match=r"lists 'day/cat/1.png' twice"):
        ImageDomains(part, domains=["day", "night", "night"])


def test_labels_are_transformed(photos: Path) -> None:
    day = data_sets.ImageFolder(photos / "day", target_transform=lambda label: 10 + label)
    data = ImageDomains(day, domains=["a", "b"] * 2)
    assert data.classes == ("10", "11")


def test_files_of_other_kinds_are_loaded_by_the_data_set(tmp_path: Path) -> None:
    for n, pixels in enumerate(PIXELS):
        folder = tmp_path / "cd"[n % 2]
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{n}.npy", pixels)
    found = data_sets.DatasetFolder(str(tmp_path), np.load, extensions=(".npy",))
    data = ImageDomains(found, domains=["a", "b"] * 4)
    assert data.classes == ("c", "d")
    assert np.asarray(decode(data.open(0))).shape == (6, 7, 3)


def test_a_subset_with_transforms_of_its_own_is_read_as_it_is(photos: Path) -> None:
    class Flipped(Subset):  # type: ignore[misc]
        def __getitem__(self, i: int) -> Any:
            image, _ = super().__getitem__(i)
            return image, "flipped" if i % 2 else "not"

        def __getitems__(self, indices: Any) -> Any:
            return [self[i] for i in indices]

    data = ImageDomains(Flipped(folders(photos)[0], range(4)), domains=["a", "a", "b", "b"])
    assert data.classes == ("flipped", "not")
    assert data.samples[0].path == "000001"


# --- map style --------------------------------------------------------------------------------


def test_tensors(photos: Path) -> None:
    data = ImageDomains(tensors([0, 1] * 4), domains=["a"] * 4 + ["b"] * 4)
    expected = [PIXELS[int(s.path)].transpose(1, 2, 0).tolist() for s in data]
    assert [np.asarray(decode(data.open(i))).tolist() for i in range(8)] == expected


def test_what_totensor_makes_becomes_the_pixels_again(photos: Path) -> None:
    class Photos(torch.utils.data.Dataset):  # type: ignore[misc]
        def __init__(self, transform: Any) -> None:
            self.images = folders(photos)[0]
            self.transform = transform

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, i: int) -> Any:
            image, label = self.images[i]
            return self.transform(image.resize((7, 6))), torch.tensor(label), "ab"[i % 2], i // 2

    plain = ImageDomains(Photos(lambda image: image))
    floats = ImageDomains(Photos(transforms.ToTensor()))
    assert floats.samples == plain.samples
    assert floats.digests == plain.digests
    assert [s.group for s in plain] == ["0", "1", "0", "1"]
    normalised = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.2])])
    with pytest.raises(InputError, match=r"'Photos', sample 0: float pixels .* any normalisation"):
        ImageDomains(Photos(normalised))


def test_concatenated_data_sets_of_both_kinds(photos: Path) -> None:
    both = ConcatDataset([folders(photos)[0], Subset(tensors([5] * 8), [6, 2])])
    data = ImageDomains(both, labels=[0, 1] * 3, domains=["a"] * 3 + ["b"] * 3)
    assert [s.path for s in data] == ["000000", "000002", "000001", "000004", "000003", "000005"]
    by_path = {s.path: data.open(i) for i, s in enumerate(data)}
    assert by_path["000000"] == (photos / "day/cat/1.png").read_bytes()
    pixels = np.asarray(decode(by_path["000005"]))
    assert pixels.tolist() == PIXELS[2].transpose(1, 2, 0).tolist()


# --- DomainBed --------------------------------------------------------------------------------


def test_environments_of_folders(photos: Path) -> None:
    data = ImageDomains(Environments(*folders(photos)))
    expected = ImageDomains(photos)
    assert data.samples == expected.samples
    assert data.digests == expected.digests


def test_environments_of_tensors() -> None:
    data = ImageDomains(Environments(tensors([0, 1] * 4), tensors([1, 0] * 4)))
    assert (data.domains, data.classes, len(data)) == (("D", "N"), ("0", "1"), 16)


def test_environments_without_names() -> None:
    with pytest.raises(InputError, match="has 3 environments, but ENVIRONMENTS names 2: 'D', 'N'"):
        ImageDomains(Environments(*[tensors([0] * 8)] * 3))


# --- bad input --------------------------------------------------------------------------------


def test_an_iterable_data_set_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(InputError, match="'Stream' is an iterable data set"):
        ImageDomains(Stream())


def test_a_data_set_without_length_is_refused() -> None:
    with pytest.raises(InputError, match="'Dataset' has no length"):
        ImageDomains(torch.utils.data.Dataset())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'ImageFolder' has no domains; give domains="),
        ({"domains": ["a"]}, "domains= has 1 value, but 'ImageFolder' has 8 images"),
        ({"root": "."}, "root= is not used with 'ImageFolder'"),
    ],
)
def test_missing_domains(photos: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ImageDomains(data_sets.ImageFolder(photos), **options)


def test_an_empty_subset() -> None:
    with pytest.raises(InputError, match="'Subset' has no images"):
        ImageDomains(Subset(tensors([0] * 8), []), domains=[])


def test_labels_that_are_vectors() -> None:
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(PIXELS), torch.eye(8))
    with pytest.raises(InputError, match=r"exactly one 1 in each row.* --task"):
        ImageDomains(dataset, domains=["a", "b"] * 4)
    classes = ImageDomains(dataset, domains=["a", "b"] * 4, task="classification").classes
    assert classes == tuple(map(str, range(8)))
    targets = torch.arange(8.0)[:, None] / 3
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(PIXELS), targets)
    assert ImageDomains(dataset, domains=["a", "b"] * 4).task.kind == "regression"
