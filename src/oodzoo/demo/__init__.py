"""The embedded data set and zoo: everything ``oodzoo demo`` needs, offline.

The data are scikit-learn's handwritten digits, rendered in six domains (:func:`write_digits`); the
zoo is a folder of tiny ONNX models (:func:`zoo_file`), none of them trained on those digits. They
were trained by ``tools/demo_zoo`` in the project's repository, which needs PyTorch. Importing this
package imports nothing heavy.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

__all__ = ["write_digits", "zoo_file"]


def zoo_file() -> Path:
    """Return the path of the packaged ``zoo.toml``; the models are in the same folder.

    Examples
    --------
    >>> zoo_file().name
    'zoo.toml'
    """
    return Path(str(files(__name__).joinpath("zoo", "zoo.toml")))


def write_digits(root: str | os.PathLike[str], *, per_class: int | None = None) -> Path:
    """Write the embedded digits as ``root/<domain>/<class>/<name>.png`` and return ``root``.

    With ``per_class``, only that many of each class in each domain. See
    :func:`oodzoo.demo.digits.write_digits`.
    """
    from oodzoo.demo import digits

    return digits.write_digits(root, per_class=per_class)
