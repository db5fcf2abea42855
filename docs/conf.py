"""Sphinx configuration."""

import json
import sys
from pathlib import Path

import oodzoo
from oodzoo import scores

HERE = Path(__file__).parent
sys.path.append(str(HERE / "_extensions"))


def _copy_notebooks() -> None:
    """Sphinx reads pages below its folder only. Links to pages are adapted to the new place."""
    for path in (HERE.parent / "examples").glob("*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8").replace("](../docs/", "](../"))
        notebook["metadata"]["language_info"] = {"name": "python", "pygments_lexer": "python"}
        text = json.dumps(notebook)
        copy = HERE / "tutorials" / path.name
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


_copy_notebooks()

project = "oodzoo"
author = "The oodzoo developers"
copyright = "The oodzoo developers"  # noqa: A001 - the name that Sphinx reads
release = version = oodzoo.__version__

extensions = [
    "accessible",  # of docs/_extensions, as are the next three
    "llms",
    "mathml",
    "names",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_design",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"oodzoo {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
# Notebooks show the outputs that are stored in them. Nothing is loaded from a network.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
myst_enable_extensions = ["dollarmath", "colon_fence", "substitution"]
myst_heading_anchors = 3

napoleon_numpy_docstring = True
napoleon_google_docstring = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
doctest_global_setup = "import oodzoo"
# pytest runs the examples of docstrings; Sphinx runs only those of the pages.
doctest_test_doctest_blocks = ""


def _score_table() -> str:
    """A Markdown table of all registered scores, so that pages never list them by hand."""
    inputs = {
        "features": "features",
        "probabilities": "source probabilities",
        "class_embeddings": "features, class embeddings",
    }
    lines = ["| name | score | needs | reference |", "|---|---|---|---|"]
    for name in scores.names():
        score = scores.get(name)
        needs = inputs.get(score.needs, "source labels")
        if score.uses_domains:
            needs += ", domains"
        lines.append(f"| `{name}` | {score.title} | {needs} | {score.reference} |")
    return "\n".join(lines)


myst_substitutions = {"scores": _score_table()}
# `Row` and `Column` exist in two packages; a reference by the bare name is ambiguous.
suppress_warnings = ["ref.python"]
