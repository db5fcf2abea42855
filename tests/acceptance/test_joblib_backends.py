"""Results under the backends of joblib that Dask and Ray add.

Run by `make slow`, which installs both; skipped where they are absent.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixtures import draw_digits
from tests.joblib_backends import results_under


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_results_do_not_depend_on_the_backend_of_joblib(
    backend: str, package: str, tmp_path: Path
) -> None:
    pytest.importorskip(package, reason=f'needs {package}: pip install -e ".[backends]"')
    photos = draw_digits(tmp_path / "photos", 6)
    expected = results_under("default", photos, tmp_path / "default")
    assert results_under(backend, photos, tmp_path / backend) == expected
