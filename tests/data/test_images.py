"""Decoding: every usual kind of file, seen as a person would see it; every bad one named."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from oodzoo._threads import Budget
from oodzoo.data import files, images
from oodzoo.data.files import UnreadableImageError, read_bytes, reading
from oodzoo.data.images import ImageFacts, as_rgb, decode, decoding, examine, read
from oodzoo.data.listing import SUFFIXES
from oodzoo.errors import InputError

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
DEEP = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
DEEP_AS_8_BIT = [0, 1, 128, 255]


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


def with_exif(jpeg: bytes, exif: bytes) -> bytes:
    body = b"Exif\0\0" + exif
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


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


def reason(content: bytes) -> str:
    text = outcome(content)
    assert isinstance(text, str)
    assert is_sound(text)
    return text


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, int, int]:
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    red, green, blue = value
    return int(red), int(green), int(blue)


def nearly(found: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 3 for a, b in zip(found, wanted, strict=True))


# --- kinds of pixels --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_usual_format_becomes_rgb(kind: str) -> None:
    image = decode(encoded(Image.new("RGB", (16, 8), (200, 40, 40)), kind))
    assert (image.mode, image.size) == ("RGB", (16, 8))
    assert nearly(pixel(image), (200, 40, 40))


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_becomes_rgb() -> None:
    assert decode(noise("AVIF")).mode == "RGB"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(encoded(Image.fromarray(DEEP), "PNG"), id="png"),
        pytest.param(encoded(Image.fromarray(DEEP), "TIFF"), id="little-endian tiff"),
        pytest.param(encoded(Image.fromarray(DEEP.astype(">u2")), "TIFF"), id="big-endian tiff"),
        pytest.param(b"P5 4 1 65535\n" + DEEP.astype(">u2").tobytes(), id="pgm"),
    ],
)
def test_16_bit_greyscale_is_scaled_not_clipped(content: bytes) -> None:
    image = decode(content)
    assert image.mode == "RGB"
    assert np.asarray(image).tolist() == [[[grey] * 3 for grey in DEEP_AS_8_BIT]]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_tiff_without_a_known_range_is_unreadable(dtype: type) -> None:
    # 0 to 255, and 0 to 65535, are as likely as each other: a guess would be silent and wrong
    content = encoded(Image.fromarray(np.array([[0, 1], [100, 255]], dtype=dtype)), "TIFF")
    assert "no known range" in reason(content)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_every_opaque_mode_becomes_rgb(mode: str) -> None:
    image = decode(encoded(Image.new("RGB", (4, 4), "white").convert(mode), "TIFF"))
    assert image.mode == "RGB"
    assert nearly(pixel(image), WHITE)


def test_cmyk_jpeg_keeps_its_colours() -> None:
    content = encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")
    assert nearly(pixel(decode(content)), (255, 0, 0))


# --- transparency -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_white_shows_through_rgba(kind: str) -> None:
    rgba = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    rgba.putpixel((1, 0), (0, 0, 200, 255))
    options = {"lossless": True} if kind == "WEBP" else {}
    image = decode(encoded(rgba, kind, **options))
    assert [pixel(image, x) for x in (0, 1)] == [WHITE, (0, 0, 200)]


def test_half_transparent_black_is_grey() -> None:
    layers = (Image.new("L", (2, 2), 0), Image.new("L", (2, 2), 128))
    assert nearly(pixel(decode(encoded(Image.merge("LA", layers), "PNG"))), (127, 127, 127))


@pytest.mark.parametrize(("kind", "transparency"), [("PNG", 0), ("PNG", b"\x00\xff"), ("GIF", 0)])
def test_white_shows_through_a_palette(kind: str, transparency: int | bytes) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.putpixel((1, 0), 1)
    found = decode(encoded(image, kind, transparency=transparency))
    assert [pixel(found, x) for x in (0, 1)] == [WHITE, (255, 0, 0)]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(png(2, 1, 8, 0, b"\0\x00\x64", b"\0\0"), id="8-bit grey"),
        pytest.param(png(2, 1, 16, 0, b"\0\x00\x00\x64\x64", b"\0\0"), id="16-bit grey"),
        pytest.param(png(2, 1, 8, 2, b"\0" + b"\x00" * 3 + b"\x64" * 3, b"\0" * 6), id="rgb"),
    ],
)
def test_white_shows_where_one_colour_is_declared_transparent(content: bytes) -> None:
    image = decode(content)
    assert [pixel(image, x) for x in (0, 1)] == [WHITE, (100, 100, 100)]


# --- orientation and animation ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_recorded_orientation_is_applied(kind: str, mode: str) -> None:
    exif = Image.Exif()
    exif[0x112] = 6  # the camera was turned: what lies on the left belongs on top
    image = Image.new(mode, (32, 16), "black")
    image.paste("white", (0, 0, 16, 16))
    upright = decode(encoded(image, kind, exif=exif))
    assert upright.size == (16, 32)
    assert nearly(pixel(upright, 8, 2), WHITE)
    assert nearly(pixel(upright, 8, 29), BLACK)


@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_a_decoded_image_is_not_turned_again(mode: str) -> None:
    """Also with a colour that is transparent: it is white."""
    exif = Image.Exif()
    exif[0x112] = 6
    image = Image.new("RGB", (32, 16), BLACK)
    image.paste((9, 99, 199), (0, 0, 16, 16))
    options = {"transparency": 0} if mode == "P" else {}
    upright = decode(encoded(image.convert(mode), "PNG", exif=exif, **options))
    assert upright.size == as_rgb(upright).size == (16, 32)
    assert as_rgb(upright).tobytes() == upright.tobytes()
    white = (np.asarray(upright) == 255).all(axis=2)
    assert white.any() == (mode == "P")


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [*enumerate([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (1, 1), (0, 1)], start=1)],
)
def test_each_orientation_moves_the_first_pixel(orientation: int, corner: tuple[int, int]) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    image = Image.new("RGB", (2, 2), "black")
    image.putpixel((0, 0), WHITE)
    assert pixel(decode(encoded(image, "PNG", exif=exif)), *corner) == WHITE


def test_16_bit_image_is_turned_too() -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    for kind in ("PNG", "TIFF"):
        image = decode(encoded(Image.fromarray(DEEP), kind, exif=exif))
        assert image.size == (1, 4)
        assert [pixel(image, 0, y)[0] for y in range(4)] == DEEP_AS_8_BIT


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's own
@pytest.mark.parametrize("exif", [b"garbage!!", b"", b"II*\0\x08\0\0\0\x05\0\x12\x01"])
def test_damaged_metadata_do_not_make_a_jpeg_unreadable(exif: bytes) -> None:
    assert decode(with_exif(noise("JPEG"), exif)).size == (24, 24)


def test_damaged_metadata_do_not_make_a_png_unreadable() -> None:
    content = noise("PNG")
    start = content.index(b"IDAT") - 4
    body = b"eXIfnonsense"
    chunk = struct.pack(">I", 8) + body + struct.pack(">I", zlib.crc32(body))
    assert decode(content[:start] + chunk + content[start:]).size == (24, 24)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert nearly(pixel(decode(content)), (255, 0, 0))


# --- bad files --------------------------------------------------------------------------------


def test_empty_file() -> None:
    assert "0 bytes" in reason(b"")


def test_text_is_not_an_image() -> None:
    assert "not an image" in reason(b"this is no picture\n" * 20)


def test_what_would_need_another_program_is_refused() -> None:
    # Pillow would hand an EPS file, whatever its suffix, to Ghostscript
    assert "EPS" in reason(encoded(Image.new("RGB", (4, 4)), "EPS"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_half_a_file_is_unreadable(kind: str) -> None:
    content = noise(kind, 64)
    reason(content[: len(content) // 2])


@pytest.mark.skipif(sys.platform == "win32", reason="libtiff is a part of Pillow there")
def test_libtiff_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray(
        encoded(Image.effect_noise((64, 64), 50), "TIFF", compression="tiff_deflate")
    )
    content[8:12] = b"\xff" * 4
    reason(bytes(content))
    assert capfd.readouterr() == ("", "")


# Pillow refuses what is beyond twice its limit, and only warns between, as at 10,000 x 10,000
@pytest.mark.parametrize("side", [20_000, 10_000])
@pytest.mark.parametrize("filters", ["error", "ignore"])
def test_image_bomb_is_refused(side: int, filters: Any) -> None:
    bomb = png(side, side, 1, 0, b"")
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        assert "89,478,485 pixels" in reason(bomb)


def test_image_just_within_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 24)
    assert decode(noise("PNG")).size == (24, 24)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 24 - 1)
    assert "575 pixels" in reason(noise("PNG"))


def test_pillows_limit_may_be_switched_off_before_import() -> None:
    code = "import PIL.Image; PIL.Image.MAX_IMAGE_PIXELS = None; import oodzoo.data.images"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("mode", "kind", "per_pixel"),
    [
        ("RGBA", "WEBP", 20),
        ("RGB", "WEBP", 20),
        ("RGBA", "PNG", 12),
        ("I;16", "PNG", 12),
        ("P", "GIF", 6),
        ("RGB", "JPEG", 12),
        ("CMYK", "JPEG", 12),
        ("LA", "JPEG2000", 28),
    ],
)
def test_memory_of_decoding_is_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kind: str, per_pixel: int
) -> None:
    """Also of an image that is turned, and of a progressive JPEG."""
    exif = Image.Exif()
    exif[0x112] = 6
    side, path = 1500, tmp_path / "image"
    options = {"lossless": True} if kind == "WEBP" else {"progressive": True, "subsampling": 0}
    if kind == "GIF":
        options = {"transparency": 0}
    path.write_bytes(encoded(Image.new(mode, (side, side)), kind, exif=exif, **options))
    limit = side * (side * per_pixel + 24)
    program = """
import sys
from oodzoo.data.images import UnreadableImageError, decode, read
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
decode(open(sys.argv[1], "rb").read())
before = peak()
try:
    read(sys.argv[2])
    print(peak() - before)
except UnreadableImageError as error:
    print(error)
"""
    small = tmp_path / "small"
    small.write_bytes(encoded(Image.new(mode, (9, 9)), kind))

    def run(variable: int) -> str:
        monkeypatch.setenv("OODZOO_IMAGE_MEMORY", str(variable))
        command = [sys.executable, "-c", program, str(small), str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return result.stdout

    assert int(run(limit)) < limit + 1e7  # one strip
    if kind != "JPEG":
        assert "takes" in (text := run(limit - 1))
        assert text.endswith("or set the variable OODZOO_IMAGE_MEMORY=1G\n")


def test_transparency_and_16_bits_do_not_depend_on_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 4), np.uint8)
    deep = pixels[..., 0].astype(np.uint16) * 257
    contents = [encoded(Image.fromarray(each), "PNG") for each in (pixels, pixels[..., :3], deep)]
    whole = [decode(content).tobytes() for content in (*contents, noise("GIF"))]
    monkeypatch.setattr(images, "_STRIP", 100)
    assert [decode(content).tobytes() for content in (*contents, noise("GIF"))] == whole


@pytest.mark.parametrize("filters", ["error", "ignore"])
@pytest.mark.parametrize(("allowed", "size"), [(40 * 60, (40, 60)), (599, (10, 15))])
def test_jpeg_beyond_the_limit_is_decoded_at_a_reduced_size(
    monkeypatch: pytest.MonkeyPatch, allowed: int, size: tuple[int, int], filters: Any
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", allowed)
    exif = Image.Exif()
    exif[0x112] = 6
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        image = decode(encoded(Image.new("RGB", (60, 40), (200, 40, 40)), "JPEG", exif=exif))
    assert image.size == size
    assert nearly(pixel(image), (200, 40, 40))


def test_limit_that_is_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODZOO_IMAGE_MEMORY", "much")
    with pytest.raises(InputError, match=r"OODZOO_IMAGE_MEMORY must be a size .* got 'much'"):
        decode(noise("PNG"))


# --- files ------------------------------------------------------------------------------------


def test_read_takes_text_and_path(tmp_path: Path) -> None:
    path = tmp_path / "a name with ünusual letters.png"
    path.write_bytes(noise("PNG"))
    assert read(path).tobytes() == read(str(path)).tobytes()


@pytest.mark.parametrize("name", ["missing.png", "folder.png", "loop.png", "pipe.png"])
def test_file_that_cannot_be_read_now_is_a_transient_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    for call in (read, read_bytes):
        with pytest.raises(UnreadableImageError) as caught:
            call(tmp_path / name)
        assert caught.value.transient


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no picture", id="text"),
        pytest.param(noise("PNG")[:-400], id="truncated"),
        pytest.param(encoded(Image.new("F", (2, 2)), "TIFF"), id="float"),
        pytest.param(encoded(Image.new("RGB", (2, 2)), "ICO"), id="format"),
    ],
)
def test_content_that_cannot_be_decoded_is_not_a_transient_error(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "1.png").write_bytes(content)
    with pytest.raises(UnreadableImageError) as caught:
        read(tmp_path / "1.png")
    assert not caught.value.transient


def test_suffixes_are_lower_case_with_dot() -> None:
    assert {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif"} <= SUFFIXES
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in SUFFIXES)


# --- properties -------------------------------------------------------------------------------

SAMPLES = {kind: noise(kind) for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")}


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1))
def test_any_prefix_of_a_file_is_read_or_named_unreadable(kind: str, share: float) -> None:
    whole = SAMPLES[kind]
    found = outcome(whole[: int(share * len(whole))])
    assert is_sound(found)
    assert isinstance(found, str) or found.size == (24, 24)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(sorted(SAMPLES)),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_bytes_raise_nothing_but_unreadable(
    kind: str, damage: list[tuple[float, int]]
) -> None:
    content = bytearray(SAMPLES[kind])
    for place, value in damage:
        content[int(place * (len(content) - 1))] = value
    assert is_sound(outcome(bytes(content)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_unreadable(content: bytes) -> None:
    assert is_sound(outcome(content))


# --- threads ----------------------------------------------------------------------------------


def test_threads_agree_and_leave_the_warning_filters_alone() -> None:
    files = [*SAMPLES.values(), png(10_000, 10_000, 1, 0, b""), b"no image"] * 30
    before = list(warnings.filters)
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(outcome, files))
    assert together == [outcome(content) for content in files]
    assert list(warnings.filters) == before


def test_first_decoding_may_happen_in_many_threads(tmp_path: Path) -> None:
    # Pillow loads its decoders with the first image, here in all threads at once
    for kind in ("TIFF", "WEBP", "PNG", "JPEG"):
        (tmp_path / kind).write_bytes(SAMPLES[kind])
    code = (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from pathlib import Path\n"
        "from oodzoo.data.images import read\n"
        "with ThreadPoolExecutor(16) as pool:\n"
        "    found = list(pool.map(read, sorted(Path(sys.argv[1]).iterdir()) * 8))\n"
        "assert {image.mode for image in found} == {'RGB'}\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "I;16"])
def test_an_open_image_is_seen_as_its_file_is(mode: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    else:
        image = image.convert("RGB").convert(mode) if mode == "P" else image.convert(mode)
    image.save(tmp_path / "image.png")
    with Image.open(tmp_path / "image.png") as opened:
        np.testing.assert_array_equal(as_rgb(opened), read(tmp_path / "image.png"))


def test_an_open_image_that_ends_too_early(tmp_path: Path) -> None:
    Image.effect_noise((64, 64), 50).save(tmp_path / "image.png")
    content = (tmp_path / "image.png").read_bytes()
    with (
        Image.open(io.BytesIO(content[: len(content) // 2])) as opened,
        pytest.raises(UnreadableImageError, match="truncated"),
    ):
        as_rgb(opened)


# --- limits -----------------------------------------------------------------------------------


def test_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "sparse.jpg").open("wb") as file:
        file.truncate(12_000_000_000)
    with pytest.raises(UnreadableImageError) as caught:
        read(tmp_path / "sparse.jpg")
    assert str(caught.value) == "the file has 12,000,000,000 bytes; the limit is 1,073,741,824"
    assert not caught.value.transient


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("step", ["read_bytes", "read"])
def test_lack_of_memory_is_transient(tmp_path: Path, step: str) -> None:
    rows = zlib.compress(bytes(4001) * 4000)
    content = png(4000, 4000, 8, 0, b"")
    start = content.index(b"IDAT") - 4
    body = b"IDAT" + rows
    chunk = struct.pack(">I", len(rows)) + body + struct.pack(">I", zlib.crc32(body))
    path = tmp_path / "1.png"
    path.write_bytes(content[:start] + chunk + content[-12:])
    if step == "read_bytes":
        with path.open("ab") as file:
            file.truncate(100_000_000)
    program = """
import resource, sys
from oodzoo._threads import Budget
from oodzoo.data import files, images
images.decode(open(sys.argv[1], "rb").read())
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 23)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    getattr(files if sys.argv[2] == "read_bytes" else images, sys.argv[2])(sys.argv[3])
except files.UnreadableImageError as error:
    print(error, error.transient)
"""
    small = tmp_path / "small.png"
    small.write_bytes(noise("PNG"))
    done = subprocess.run(
        [sys.executable, "-c", program, small, step, path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "not enough memory True\n"


def test_threads_together_hold_a_limited_amount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of threads: two of these files and one image fit."""
    content = noise("PNG")
    (tmp_path / "1.png").write_bytes(content)
    monkeypatch.setattr(files, "_BYTES", Budget(2 * len(content)))
    monkeypatch.setattr(images, "_MEMORY", Budget(24 * (24 * 12 + 24)))
    turn = threading.Lock()
    held = {"bytes": 0, "images": 0}
    most = dict(held)

    @contextmanager
    def counted(kind: str) -> Iterator[None]:
        with turn:
            held[kind] += 1
            most[kind] = max(most[kind], held[kind])
        time.sleep(0.002)
        yield
        with turn:
            held[kind] -= 1

    def work(_: int) -> tuple[int, int]:
        with (
            reading(tmp_path / "1.png") as read_content,
            counted("bytes"),
            decoding(read_content) as image,
            counted("images"),
        ):
            return image.size

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(work, range(64))) == {(24, 24)}
    assert most == {"bytes": 2, "images": 1}


def test_error_of_the_user_of_an_image_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), decoding(noise("PNG")):
        _ = 1 // 0


# --- facts ------------------------------------------------------------------------------------


def test_facts_of_colour_and_greyscale() -> None:
    assert examine(noise("JPEG")) == ImageFacts(24, 24, "JPEG", "RGB", False)
    grey = Image.fromarray(np.arange(100 * 80, dtype=np.uint8).reshape(80, 100))
    assert examine(encoded(grey, "PNG")) == ImageFacts(100, 80, "PNG", "L", True)
    assert examine(encoded(grey.convert("RGB"), "JPEG")) == ImageFacts(100, 80, "JPEG", "RGB", True)
    assert examine(encoded(Image.fromarray(DEEP), "PNG"))[:2] == (4, 1)


def test_a_coloured_part_is_found() -> None:
    image = Image.new("RGB", (640, 480), (90, 90, 90))
    image.paste((90, 91, 90), (600, 440, 640, 480))
    assert not examine(encoded(image, "PNG")).is_grey


def test_facts_are_those_of_the_upright_image() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(Image.new("RGB", (30, 20)), "JPEG", exif=exif)
    assert examine(turned)[:2] == decode(turned).size == (20, 30)


@pytest.mark.parametrize("content", [b"", b"text", noise("JPEG")[:-200]])
def test_what_cannot_be_decoded_has_no_facts(content: bytes) -> None:
    with pytest.raises(UnreadableImageError) as expected:
        decode(content)
    with pytest.raises(UnreadableImageError) as found:
        examine(content)
    assert str(found.value) == str(expected.value)
