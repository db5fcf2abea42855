"""Stores as in the tests of stores, to be damaged and interrupted."""

from tests.store.conftest import _tiny, images, small, tiny_store, tree

__all__ = ["_tiny", "images", "small", "tiny_store", "tree"]
