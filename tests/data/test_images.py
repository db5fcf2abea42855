"""Decoding: every usual kind of file, seen as a person would see it; every bad one named."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.data.files import UnreadableImageError
from oodzoo.data.pixels import ImageFacts, as_rgb, decode, examine, read

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
DEEP = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
GREYS = [(grey,) * 3 for grey in (0, 1, 128, 255)]


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(kind: str, size: int = 24) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), kind)


def png(
    width: int, height: int, depth: int, colour: int, rows: bytes, transparency: bytes = b""
) -> bytes:
    """A PNG written by hand, for what Pillow would not write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + (chunk(b"tRNS", transparency) if transparency else b"")
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def outcome(content: bytes) -> Image.Image | str:
    """The image, or the reason why there is none; nothing else may be raised."""
    try:
        return decode(content)
    except UnreadableImageError as error:
        return str(error)


def is_sound(outcome: Image.Image | str) -> bool:
    if isinstance(outcome, str):
        return outcome != "" and "\n" not in outcome
    return outcome.mode == "RGB"


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, int, int]:
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    red, green, blue = value
    return int(red), int(green), int(blue)


def nearly(found: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 3 for a, b in zip(found, wanted, strict=True))


# --- what a person sees ---------------------------------------------------------------------------


def painted(mode: str, *colours: Any, size: int = 1) -> Image.Image:
    """An image with a square of each colour, from left to right."""
    image = Image.new(mode, (size * len(colours), size))
    for at, colour in enumerate(colours):
        image.paste(colour, (size * at, 0, size * (at + 1), size))
    return image


def palette() -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.putpixel((1, 0), 1)
    return image


RED, BLUE = (200, 40, 40), (0, 0, 200)
HALF = Image.merge("LA", (Image.new("L", (2, 2), 0), Image.new("L", (2, 2), 128)))
LAYERS = painted("RGBA", (0, 0, 0, 0), (*BLUE, 255))
FRAMES = {"save_all": True, "append_images": [painted("RGB", "blue", size=4)]}
CASES: dict[str, tuple[bytes, list[tuple[int, int, int]]]] = {
    **{kind: (encoded(painted("RGB", RED, size=16), kind), [RED] * 16)
       for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")},
    "16-bit PNG": (encoded(Image.fromarray(DEEP), "PNG"), GREYS),
    "16-bit TIFF": (encoded(Image.fromarray(DEEP), "TIFF"), GREYS),
    "16-bit big-endian TIFF": (encoded(Image.fromarray(DEEP.astype(">u2")), "TIFF"), GREYS),
    **{f"TIFF {mode}": (encoded(Image.new("RGB", (4, 4), "white").convert(mode), "TIFF"), [WHITE])
       for mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr")},
    "CMYK JPEG": (encoded(painted("CMYK", (0, 255, 255, 0), size=8), "JPEG"), [(255, 0, 0)]),
    "RGBA PNG": (encoded(LAYERS, "PNG"), [WHITE, BLUE]),
    "RGBA WEBP": (encoded(LAYERS, "WEBP", lossless=True), [WHITE, BLUE]),
    "half transparent": (encoded(HALF, "PNG"), [(127, 127, 127)]),
    "palette PNG": (encoded(palette(), "PNG", transparency=0), [WHITE, (255, 0, 0)]),
    "alpha of a palette": (encoded(palette(), "PNG", transparency=b"\x00\xff"),
        [WHITE, (255, 0, 0)]),
    "palette GIF": (encoded(palette(), "GIF", transparency=0), [WHITE, (255, 0, 0)]),
    "8-bit transparent grey": (png(2, 1, 8, 0, b"\0\x00\x64", b"\0\0"), [WHITE, (100,) * 3]),
    "16-bit transparent grey": (png(2, 1, 16, 0, b"\0\0\0\x64\x64", b"\0\0"), [WHITE, (100,) * 3]),
    "transparent colour": (png(2, 1, 8, 2, b"\0" + b"\0" * 3 + b"\x64" * 3, b"\0" * 6),
        [WHITE, (100,) * 3]),
    **{f"frames of {kind}": (encoded(painted("RGB", "red", size=4), kind, **FRAMES), [(255, 0, 0)])
       for kind in ("GIF", "PNG", "WEBP", "TIFF")},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_usual_file_becomes_rgb(name: str) -> None:
    content, row = CASES[name]
    image = decode(content)
    assert image.mode == "RGB"
    assert image.width >= len(row)
    found = [pixel(image, x) for x in range(len(row))]
    lossy = name in ("JPEG", "WEBP", "CMYK JPEG", "half transparent", "frames of WEBP")
    assert all(map(nearly, found, row)) if lossy else found == row


# --- orientation and metadata ---------------------------------------------------------------------


def turned(orientation: int = 6) -> Image.Exif:
    exif = Image.Exif()
    exif[0x112] = orientation  # 6: what lies on the left belongs on top
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_recorded_orientation_is_applied(kind: str) -> None:
    for mode in ("RGB", "L"):
        image = painted(mode, "white", "black", size=16)
        upright = decode(encoded(image, kind, exif=turned()))
        assert upright.size == (16, 32)
        assert nearly(pixel(upright, 8, 2), WHITE)
        assert nearly(pixel(upright, 8, 29), BLACK)
        assert as_rgb(upright).tobytes() == upright.tobytes()  # it is not turned again
    deep = decode(encoded(Image.fromarray(DEEP), "PNG" if kind != "TIFF" else kind, exif=turned()))
    assert [pixel(deep, 0, y) for y in range(4)] == GREYS


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's own
@pytest.mark.parametrize("exif", [b"garbage!!", b"", b"II*\0\x08\0\0\0\x05\0\x12\x01"])
def test_damaged_metadata_do_not_make_an_image_unreadable(exif: bytes) -> None:
    jpeg, body = noise("JPEG"), b"Exif\0\0" + exif
    header = b"\xff\xe1" + struct.pack(">H", len(body) + 2)
    assert decode(jpeg[:2] + header + body + jpeg[2:]).size == (24, 24)
    content, body = noise("PNG"), b"eXIf" + exif
    start = content.index(b"IDAT") - 4
    chunk = struct.pack(">I", len(exif)) + body + struct.pack(">I", zlib.crc32(body))
    assert decode(content[:start] + chunk + content[start:]).size == (24, 24)


# --- bad files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty (0 bytes)"),
        (b"this is no picture\n" * 20, "not an image that Pillow can identify"),
        # Pillow would hand an EPS file, whatever its suffix, to Ghostscript
        (encoded(Image.new("RGB", (4, 4)), "EPS"), "unsupported format EPS; convert it to PNG"),
        # 0 to 255, and 0 to 65535, are as likely as each other: a guess would be silent and wrong
        (encoded(Image.new("F", (2, 2)), "TIFF"), "floating-point pixels have no known range"),
        *((noise(kind, 64)[: len(noise(kind, 64)) // 2], "")
          for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP")),
    ],
)  # fmt: skip
def test_content_that_cannot_be_decoded(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a name with ünusual letters.png"
    path.write_bytes(content)
    for call in (lambda: read(path), lambda: read(str(path)), lambda: examine(content)):
        with pytest.raises(UnreadableImageError) as caught:
            call()
        assert words in str(caught.value)
        assert is_sound(str(caught.value))
        assert not caught.value.transient


# Pillow refuses what is beyond twice its limit, and only warns between, as at 10,000 x 10,000
@pytest.mark.parametrize("side", [20_000, 10_000])
@pytest.mark.parametrize("filters", ["error", "ignore"])
def test_image_bomb_is_refused(side: int, filters: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        assert "89,478,485 pixels" in str(outcome(png(side, side, 1, 0, b"")))


def test_image_just_within_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 24)
    assert decode(noise("PNG")).size == (24, 24)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 24 - 1)
    assert "575 pixels" in str(outcome(noise("PNG")))
    monkeypatch.setenv("OODZOO_IMAGE_MEMORY", "much")
    with pytest.raises(InputError, match=r"OODZOO_IMAGE_MEMORY must be a size .* got 'much'"):
        decode(noise("PNG"))


@pytest.mark.parametrize(
    ("mode", "kind", "per_pixel"),
    [
        ("RGBA", "WEBP", 20), ("RGB", "WEBP", 20), ("RGBA", "PNG", 12), ("I;16", "PNG", 12),
        ("P", "GIF", 6), ("LA", "JPEG2000", 28),
    ],
)  # fmt: skip
def test_memory_that_decoding_may_need(
    monkeypatch: pytest.MonkeyPatch, mode: str, kind: str, per_pixel: int
) -> None:
    """Also of an image that is turned."""
    side = 150
    every: dict[str, dict[str, Any]] = {"WEBP": {"lossless": True}, "GIF": {"transparency": 0}}
    options = every.get(kind, {})
    content = encoded(Image.new(mode, (side, side)), kind, exif=turned(), **options)
    limit = side * (side * per_pixel + 24)
    monkeypatch.setenv("OODZOO_IMAGE_MEMORY", str(limit))
    assert decode(content).size == (side, side)
    monkeypatch.setenv("OODZOO_IMAGE_MEMORY", str(limit - 1))
    with pytest.raises(UnreadableImageError, match=r"takes .* set the variable OODZOO_IMAGE_MEMOR"):
        decode(content)


def test_transparency_and_16_bits_do_not_depend_on_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 4), np.uint8)
    deep = pixels[..., 0].astype(np.uint16) * 257
    contents = [encoded(Image.fromarray(each), "PNG") for each in (pixels, pixels[..., :3], deep)]
    whole = [decode(content).tobytes() for content in (*contents, noise("GIF"))]
    monkeypatch.setattr("oodzoo.data.pixels._STRIP", 100)
    assert [decode(content).tobytes() for content in (*contents, noise("GIF"))] == whole


@pytest.mark.parametrize("filters", ["error", "ignore"])
@pytest.mark.parametrize(("allowed", "size"), [(40 * 60, (40, 60)), (599, (10, 15))])
def test_jpeg_beyond_the_limit_is_decoded_at_a_reduced_size(
    monkeypatch: pytest.MonkeyPatch, allowed: int, size: tuple[int, int], filters: Any
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", allowed)
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        image = decode(encoded(Image.new("RGB", (60, 40), (200, 40, 40)), "JPEG", exif=turned()))
    assert image.size == size
    assert nearly(pixel(image), (200, 40, 40))


# --- files ----------------------------------------------------------------------------------------


LITTLE_MEMORY = """
import resource, sys
from oodzoo.data import files, pixels
small, large, padded = sys.argv[1:]
pixels.decode(open(small, "rb").read())
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 23)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
for function, path in ((pixels.read, large), (files.read_bytes, padded)):
    try:
        function(path)
    except files.UnreadableImageError as error:
        print(error, error.transient)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_lack_of_memory_is_transient(tmp_path: Path) -> None:
    small, large, padded = (tmp_path / f"{name}.png" for name in ("small", "large", "padded"))
    small.write_bytes(noise("PNG"))
    content = png(4000, 4000, 8, 0, bytes(4001) * 4000)
    large.write_bytes(content)
    padded.write_bytes(content)
    with padded.open("ab") as file:
        file.truncate(100_000_000)
    command = [sys.executable, "-c", LITTLE_MEMORY, *map(str, (small, large, padded))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "not enough memory True\n" * 2


# --- properties -----------------------------------------------------------------------------------

SAMPLES = {kind: noise(kind) for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")}


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(sorted(SAMPLES)),
    share=st.floats(0, 1),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
)
def test_damaged_files_are_read_or_named_unreadable(
    kind: str, share: float, damage: list[tuple[float, int]]
) -> None:
    whole = bytearray(SAMPLES[kind])
    found = outcome(bytes(whole[: int(share * len(whole))]))
    assert is_sound(found)
    assert isinstance(found, str) or found.size == (24, 24)
    for place, value in damage:
        whole[int(place * (len(whole) - 1))] = value
    assert is_sound(outcome(bytes(whole)))


# --- open images, and facts -----------------------------------------------------------------------


def test_facts() -> None:
    assert examine(noise("JPEG")) == ImageFacts(24, 24, "JPEG", "RGB", False)
    grey = Image.fromarray(np.arange(100 * 80, dtype=np.uint8).reshape(80, 100))
    assert examine(encoded(grey, "PNG")) == ImageFacts(100, 80, "PNG", "L", True)
    assert examine(encoded(grey.convert("RGB"), "JPEG")) == ImageFacts(100, 80, "JPEG", "RGB", True)
    assert examine(encoded(Image.fromarray(DEEP), "PNG"))[:2] == (4, 1)
    image = Image.new("RGB", (640, 480), (90, 90, 90))
    image.paste((90, 91, 90), (600, 440, 640, 480))
    assert not examine(encoded(image, "PNG")).is_grey
    upright = encoded(Image.new("RGB", (30, 20)), "JPEG", exif=turned())
    assert examine(upright)[:2] == decode(upright).size == (20, 30)
