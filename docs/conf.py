"""How Sphinx builds the documentation."""

import oodzoo
from oodzoo import scores

project = "oodzoo"
author = "The oodzoo developers"
copyright = "The oodzoo developers"  # noqa: A001 - Sphinx wants this name
release = version = oodzoo.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"oodzoo {release}"
myst_enable_extensions = ["dollarmath", "colon_fence", "substitution"]
myst_heading_anchors = 3

napoleon_numpy_docstring = True
napoleon_google_docstring = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
doctest_global_setup = "import oodzoo"
# pytest runs the examples of docstrings, where their names are known; here only those of pages run
doctest_test_doctest_blocks = ""


def _table_of_scores() -> str:
    """The registered scores, as the pages list them: a new one needs no new line there."""
    needs = {"features": "features", "probabilities": "source probabilities"}
    lines = ["| name | | needs | reference |", "|---|---|---|---|"]
    for name in scores.names():
        score = scores.get(name)
        what = needs.get(score.needs, "source labels") + (", domains" if score.uses_domains else "")
        lines.append(f"| `{name}` | {score.title} | {what} | {score.reference} |")
    return "\n".join(lines)


myst_substitutions = {"scores": _table_of_scores()}
# Rows of a ranking and rows of an evaluation are both called Row where they are at home.
suppress_warnings = ["ref.python"]
