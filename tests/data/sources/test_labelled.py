"""Labels, domains and groups, from the source or from the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.data.files import LocalFile
from oodzoo.data.listing import Sample
from oodzoo.data.sources.base import Options
from oodzoo.data.sources.labelled import as_list, collect_roles, list_labelled, row_names

FILES = [LocalFile("a"), LocalFile("b")]


def test_what_the_user_gives_comes_first() -> None:
    options = Options(labels=np.array([3, 4]), groups=[None, 7])
    own = {"label": ["x", "y"], "domain": ["day", "night"]}
    listing = list_labelled("list", ["0", "1"], FILES, own, options)
    assert listing.samples == [Sample("0", "day", "3"), Sample("1", "night", "4", "7")]
    assert listing.files == FILES


def test_one_domain_of_all_images_begins_their_paths() -> None:
    listing = list_labelled("list", ["0", "1"], FILES, {"label": [0, 1]}, Options(domains="day"))
    assert [sample.path for sample in listing.samples] == ["day/0", "day/1"]
    assert {sample.domain for sample in listing.samples} == {"day"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(domains=[1, 2]), "'list' has no labels; give labels=, one for each image"),
        (Options(labels=[1, 2]), "'list' has no domains; give domains=, .* or a dict of data sets"),
        (Options(labels=[1], domains=[1, 2]), "labels= has 1 value, but 'list' has 2 images"),
        (Options(labels=[1, 2], domains=[1, 2], groups=[1]), "groups= has 1 value"),
        (Options(labels=5, domains=[1, 2]), "labels= must be a sequence.* got int"),  # type: ignore[arg-type]
        (Options(labels=[1, "a"], domains=[1, 2]), "labels of mixed kinds"),
        (Options(labels=[1, None], domains=[1, 2]), "row 1: the label is missing"),
        (Options(labels=np.eye(2), domains=[1, 2]), "exactly one 1 in each row.* --task"),
    ],
)
def test_bad_labels_and_domains(options: Options, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        list_labelled("list", ["0", "1"], FILES, {}, options)
    assert "\n" not in str(caught.value)


def test_no_images() -> None:
    with pytest.raises(InputError, match="'list' has no images"):
        list_labelled("list", [], [], {}, Options(labels=[], domains=[]))


def test_a_string_is_the_label_of_all_images() -> None:
    assert collect_roles("list", 2, Options(labels="cat"), {"domain": [1, 2]}) == {
        "label": ["cat", "cat"],
        "domain": [1, 2],
    }


def test_numbers_are_sorted_as_text() -> None:
    names = row_names(1_000_001)
    assert names == sorted(names)
    assert names[0] == "0000000"


def test_arrays_become_lists() -> None:
    assert as_list(np.array([1, 2])) == [1, 2]
    assert as_list(path for path in [Path("a")]) == [Path("a")]
    with pytest.raises(TypeError):
        as_list(np.int64(3))


def test_series_are_read_by_position() -> None:
    pandas = pytest.importorskip("pandas")
    assert as_list(pandas.Series(["a", "b"], index=[7, 0])) == ["a", "b"]
