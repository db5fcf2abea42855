"""How the embedded zoo was made: ``python -m tools.demo_zoo.pretrain --help``.

The subjects, in the order data flows: ``fonts`` (which typefaces, under which licence), ``glyphs``
and ``shapes`` and ``photos`` (source images), ``appearance`` (augmentation), ``models``
(architectures), ``objectives`` (what they are trained for), ``catalogue`` (which model gets
which of all these), ``pretrain`` (the loop and the command), ``export`` (ONNX and ``zoo.toml``),
``probe`` (how good each is on the embedded digits) and ``card`` (the README beside the models).

Nothing here is imported by the rest of oodzoo, and all but ``probe`` needs PyTorch or ONNX. The
digits of scikit-learn appear in ``probe`` alone: no model saw them while it was made.
"""
