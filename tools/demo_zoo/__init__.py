"""Training of the embedded zoo; run from the project's root.

``python -m tools.demo_zoo.pretrain --help`` shows how. The modules, in the order data flows:
``fonts`` (typefaces and their licences), ``glyphs``, ``shapes`` and ``photos`` (source images),
``appearance`` (augmentation), ``sources`` (what a model is trained on), ``models`` (architectures),
``objectives`` (training losses), ``catalogue`` (the recipe of each model), ``pretrain`` (the
training loop and the command), ``export`` (ONNX and ``zoo.toml``), ``probe`` (accuracy on the
embedded digits) and ``card`` (the README of the zoo).

The package does not import this, and all modules but ``probe`` need PyTorch or ONNX
(``pip install -e ".[tools]"``). Only ``probe`` reads scikit-learn's digits: no model was trained on
them.
"""
