"""The embedded data set and zoo: everything ``oodzoo demo`` needs, offline.

The data are scikit-learn's handwritten digits, photographed, as it were, under six conditions
(:func:`write_digits`); the zoo is a folder of tiny models in ONNX (:func:`zoo_file`), pre-trained
on anything but those digits. How the models were made is in :mod:`tools.demo_zoo`, which is
the only place that needs PyTorch; importing this package loads nothing heavy.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

__all__ = ["write_digits", "zoo_file"]


def zoo_file() -> Path:
    """Return the path of the packaged ``zoo.toml``; the models lie beside it.

    Examples
    --------
    >>> zoo_file().name
    'zoo.toml'
    """
    return Path(str(files(__name__).joinpath("zoo", "zoo.toml")))


def write_digits(root: str | os.PathLike[str]) -> Path:
    """Write the embedded digits as ``root/<domain>/<class>/<name>.png`` and return ``root``.

    See :func:`oodzoo.demo.digits.write_digits`, which this imports when it is called.
    """
    from oodzoo.demo import digits

    return digits.write_digits(root)
