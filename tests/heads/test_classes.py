"""One class only is an error."""

from __future__ import annotations

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.heads.classes import require_classes_to_tell_apart, require_two_classes

SOURCE = ArraySource({"a": np.eye(4)}, ["cat", "cat", "cat", "dog"], ["x", "x", "y", "y"])


def test_one_class_is_named() -> None:
    with pytest.raises(InputError, match=r"all labels are of one class, 'dog' \(2 samples\)"):
        require_two_classes(np.array([1, 1]), ["cat", "dog"])
    with pytest.raises(InputError, match="one class, 1 "):
        require_two_classes(np.array([1, 1]))


def test_the_domains_that_are_used_count() -> None:
    require_classes_to_tell_apart(SOURCE)
    require_classes_to_tell_apart(SOURCE, ["y"])
    with pytest.raises(InputError, match="one class, 'cat'"):
        require_classes_to_tell_apart(SOURCE, ["x"])


def test_no_labels_are_not_one_class() -> None:
    require_two_classes(np.empty(0, np.int64))
    require_classes_to_tell_apart(SOURCE, [])
