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

from oodzoo.core.errors import InputError
from oodzoo.core.threads import Budget
from oodzoo.data import files, images
from oodzoo.data.files import UnreadableImageError, read_bytes, reading
from oodzoo.data.images import ImageFacts, as_rgb, decode, decoding, examine, read

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
    "16-bit PGM": (b"P5 4 1 65535\n" + DEEP.astype(">u2").tobytes(), GREYS),
    **{f"TIFF {mode}": (encoded(Image.new("RGB", (4, 4), "white").convert(mode), "TIFF"), [WHITE])
       for mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr")},
    "CMYK JPEG": (encoded(painted("CMYK", (0, 255, 255, 0), size=8), "JPEG"), [(255, 0, 0)]),
    "RGBA PNG": (encoded(LAYERS, "PNG"), [WHITE, BLUE]),
    "RGBA TIFF": (encoded(LAYERS, "TIFF"), [WHITE, BLUE]),
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


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_becomes_rgb() -> None:
    assert decode(noise("AVIF")).mode == "RGB"


# --- orientation and metadata ---------------------------------------------------------------------


def turned(orientation: int = 6) -> Image.Exif:
    exif = Image.Exif()
    exif[0x112] = orientation  # 6: what lies on the left belongs on top
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_recorded_orientation_is_applied(kind: str, mode: str) -> None:
    image = painted(mode, "white", "black", size=16)
    upright = decode(encoded(image, kind, exif=turned()))
    assert upright.size == (16, 32)
    assert nearly(pixel(upright, 8, 2), WHITE)
    assert nearly(pixel(upright, 8, 29), BLACK)
    deep = decode(encoded(Image.fromarray(DEEP), "PNG" if kind != "TIFF" else kind, exif=turned()))
    assert [pixel(deep, 0, y) for y in range(4)] == GREYS


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [*enumerate([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (1, 1), (0, 1)], start=1)],
)
def test_each_orientation_moves_the_first_pixel(orientation: int, corner: tuple[int, int]) -> None:
    image = Image.new("RGB", (2, 2), "black")
    image.putpixel((0, 0), WHITE)
    assert pixel(decode(encoded(image, "PNG", exif=turned(orientation))), *corner) == WHITE


@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_a_decoded_image_is_not_turned_again(mode: str) -> None:
    """Also with a colour that is transparent: it is white."""
    image = painted("RGB", (9, 99, 199), BLACK, size=16).convert(mode)
    options = {"transparency": 0} if mode == "P" else {}
    upright = decode(encoded(image, "PNG", exif=turned(), **options))
    assert upright.size == as_rgb(upright).size == (16, 32)
    assert as_rgb(upright).tobytes() == upright.tobytes()
    white = (np.asarray(upright) == 255).all(axis=2)
    assert white.any() == (mode == "P")


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
        (encoded(Image.new("RGB", (2, 2)), "ICO"), "unsupported format ICO"),
        # 0 to 255, and 0 to 65535, are as likely as each other: a guess would be silent and wrong
        (encoded(Image.new("F", (2, 2)), "TIFF"), "floating-point pixels have no known range"),
        (encoded(Image.new("I", (2, 2)), "TIFF"), "32-bit pixels have no known range"),
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


@pytest.mark.skipif(sys.platform == "win32", reason="libtiff is a part of Pillow there")
def test_libtiff_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray(
        encoded(Image.effect_noise((64, 64), 50), "TIFF", compression="tiff_deflate")
    )
    content[8:12] = b"\xff" * 4
    assert isinstance(outcome(bytes(content)), str)
    assert capfd.readouterr() == ("", "")


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
    side, path = 1500, tmp_path / "image"
    options = {"lossless": True} if kind == "WEBP" else {"progressive": True, "subsampling": 0}
    if kind == "GIF":
        options = {"transparency": 0}
    path.write_bytes(encoded(Image.new(mode, (side, side)), kind, exif=turned(), **options))
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
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        image = decode(encoded(Image.new("RGB", (60, 40), (200, 40, 40)), "JPEG", exif=turned()))
    assert image.size == size
    assert nearly(pixel(image), (200, 40, 40))


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["missing.png", "folder.png", "loop.png", "pipe.png"])
def test_file_that_cannot_be_read_now_is_a_transient_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    for call in (read, read_bytes):
        with pytest.raises(UnreadableImageError) as caught:
            call(tmp_path / name)
        assert caught.value.transient


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
from oodzoo.core.threads import Budget
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


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_unreadable(content: bytes) -> None:
    assert is_sound(outcome(content))


# --- threads --------------------------------------------------------------------------------------


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


# --- open images, and facts -----------------------------------------------------------------------


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


def test_an_open_image_that_ends_too_early() -> None:
    content = encoded(Image.effect_noise((64, 64), 50), "PNG")
    with (
        Image.open(io.BytesIO(content[: len(content) // 2])) as opened,
        pytest.raises(UnreadableImageError, match="truncated"),
    ):
        as_rgb(opened)


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
