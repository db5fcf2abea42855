"""Stores to compare, and zoos to extract with."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from onnx import TensorProto, helper

import oodzoo


def shards(store: Path) -> list[Path]:
    """List the records of shards that are complete, also in a store that is being written."""
    return sorted(store.glob("models/*/[0-9]*.json"))


def nothing_but_timings_differs(expected: Path, found: Path) -> None:
    """Compare all files of two stores; those of timings differ between any two runs."""
    contents = [
        {
            path.relative_to(store): path.read_bytes()
            for path in store.rglob("*")
            if path.is_file() and path.name != "local.json"
        }
        for store in (expected, found)
    ]
    assert contents[0].keys() == contents[1].keys()
    assert [name for name in contents[0] if contents[0][name] != contents[1][name]] == []


def write_zoo(folder: Path, models: list[str]) -> Path:
    """Copy models of the embedded zoo into a folder with a zoo file."""
    folder.mkdir()
    lines = []
    for spec in oodzoo.load_zoo("demo"):
        if spec.name in models:
            shutil.copyfile(spec.file, folder / spec.file.name)
            lines += [
                "[[model]]",
                f'name = "{spec.name}"',
                f'source = "{spec.source}"',
                "input_size = 32",
                "mean = [0.5, 0.5, 0.5]",
                "std = [0.5, 0.5, 0.5]",
            ]
    zoo = folder / "zoo.toml"
    zoo.write_text("\n".join(lines) + "\n")
    return zoo


def write_crashing_model(path: Path) -> None:
    """Write a valid ONNX file with functions nested so deep that onnxruntime overflows its stack.

    The process that opens it is killed by a segmentation fault.
    """
    depth = 10_000
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function(
            "local",
            f"f{number}",
            ["x"],
            ["y"],
            [
                helper.make_node(f"f{number + 1}", ["x"], ["y"], domain="local")
                if number < depth - 1
                else helper.make_node("Relu", ["x"], ["y"])
            ],
            opsets,
        )
        for number in range(depth)
    ]
    graph = helper.make_graph(
        [helper.make_node("f0", ["input"], ["features"], domain="local")],
        "crash",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 3, 32, 32])],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    onnx.save(model, path)
