"""A feature store as a table in a notebook."""

from __future__ import annotations

from oodzoo.store.display import store_as_html
from oodzoo.store.manifest import StoredModel


def stored(name: str) -> StoredModel:
    return StoredModel(
        name=name, source="onnx/" + 99 * "x", fingerprint="", feature_dim=1280, n_logits=None,
        parameters=5_000_000, pretraining=None, precision="float32", dtype="float32",
        preprocessing={"mean": [0.5] * 99},
    )  # fmt: skip


def test_each_model_has_a_row_and_domains_are_counted() -> None:
    odd = "<img>"
    times = {"b": None, odd: 17.345}
    models = {name: stored(name) for name in times}
    html = store_as_html("photos", models, times, {"day": 1200, odd: 5}, "3 classes")
    assert html.count("<tr>") == 3
    assert html.index("&lt;img&gt;</th>") < html.index("b</th>")
    assert all(text in html for text in ("1,280", "5,000,000", "17.3", "1,205 images"))
    assert "2 domains: day (1,200), &lt;img&gt; (5); 3 classes." in html
    assert odd not in html


def test_the_record_of_a_model_is_short() -> None:
    assert repr(stored("m")).startswith("StoredModel('m': 1,280 features, source 'onnx/xxx")
    assert len(repr(stored("m" * 99))) < 200
