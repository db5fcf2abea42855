"""How the embedded zoo was made: ``python -m oodzoo.demo.making.pretrain --help``.

The subjects, in the order data flows: ``fonts`` (which typefaces, under which licence), ``glyphs``
and ``shapes`` and ``photos`` (source images), ``appearance`` (augmentation), ``networks``
(architectures), ``objectives`` (what they are trained for), ``catalogue`` (which network gets
which of all these), ``pretrain`` (the loop and the command), ``export`` (ONNX and ``zoo.toml``),
``probe`` (how good each is on the embedded digits) and ``card`` (the README beside the networks).

Nothing here is imported by the rest of oodzoo, and all but ``probe`` needs PyTorch or ONNX. The
digits of scikit-learn appear in ``probe`` alone: no network saw them while it was made.
"""
