"""How Sphinx builds the documentation."""

import zood

project = "zood"
author = "The zood developers"
copyright = "The zood developers"  # noqa: A001 - Sphinx wants this name
release = version = zood.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"zood {release}"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

napoleon_numpy_docstring = True
napoleon_google_docstring = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
doctest_global_setup = "import zood"
# pytest runs the examples of docstrings, where their names are known; here only those of pages run
doctest_test_doctest_blocks = ""
