"""Typefaces of the glyphs: Debian packages, licences, files.

The list is explicit, so that the same packages give the same atlas and the model card can name the
training data. Every licence here allows free use of documents made with the font.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LATIN", "NON_LATIN", "Package", "find_faces"]


@dataclass(frozen=True)
class Package:
    """A Debian font package and its faces in use."""

    name: str
    licence: str
    faces: tuple[str, ...]


def _package(name: str, licence: str, faces: str) -> Package:
    return Package(name, licence, tuple(faces.split()))


OFL, GPL = "OFL-1.1", "GPL with font exception"

LATIN: tuple[Package, ...] = (
    _package("fonts-averia-sans-gwf", OFL, "AveriaSansGWF-Regular.ttf AveriaSansGWF-Light.ttf"),
    _package(
        "fonts-bwht",
        OFL,
        "BecauseWeBuild-Regular.otf BecauseWeConnect-Regular.otf BecauseWeCreate-Regular.otf"
        " BecauseWeLearn-Regular.otf BecauseWeMentor-Regular.otf BecauseWeOrganize-Regular.otf",
    ),
    _package("fonts-cabin", OFL, "Cabin-Regular.otf Cabin-BoldItalic.otf"),
    _package("fonts-cantarell", OFL, "Cantarell-Light.otf Cantarell-Bold.otf"),
    _package("fonts-comfortaa", OFL, "Comfortaa-Regular.ttf Comfortaa-Bold.ttf"),
    _package(
        "fonts-comic-neue", OFL, "ComicNeue-Regular.otf ComicNeue-Bold.otf ComicNeue-Italic.otf"
    ),
    _package("fonts-dancingscript", OFL, "DancingScript-Regular.otf"),
    _package(
        "fonts-dejavu-core", "Bitstream Vera", "DejaVuSans.ttf DejaVuSerif.ttf DejaVuSansMono.ttf"
    ),
    _package("fonts-dkg-handwriting", OFL, "dkg.ttf dkgBd.ttf dkgIt.ttf"),
    _package("fonts-dosis", OFL, "Dosis-Light.otf Dosis-Bold.otf"),
    _package("fonts-ecolier-court", OFL, "Ecolier-court.ttf"),
    _package("fonts-eurofurence", OFL, "eurof55.ttf eurof76.ttf"),
    _package("fonts-freefont-ttf", GPL, "FreeSans.ttf FreeSerifItalic.ttf FreeMonoBold.ttf"),
    _package("fonts-humor-sans", OFL, "Humor-Sans.ttf"),
    _package("fonts-inconsolata", "OFL-1.0", "Inconsolata.otf"),
    _package("fonts-junction", OFL, "Junction.otf"),
    _package("fonts-jura", OFL, "Jura-Regular.otf"),
    _package("fonts-kaushanscript", OFL, "KaushanScript-Regular.otf"),
    _package("fonts-klee", OFL, "KleeOne-Regular.ttf KleeOne-SemiBold.ttf"),
    _package("fonts-kristi", OFL, "Kristi.ttf"),
    _package(
        "fonts-lato", OFL, "Lato-Regular.ttf Lato-Light.ttf Lato-Black.ttf Lato-MediumItalic.ttf"
    ),
    _package("fonts-leckerli-one", OFL, "LeckerliOne-Regular.ttf"),
    _package("fonts-liberation2", OFL, "LiberationSans-Regular.ttf LiberationSerif-Bold.ttf"),
    _package("fonts-monofur", OFL, "monof55.ttf monof56.ttf"),
    _package("fonts-mononoki", OFL, "mononoki-Regular.ttf mononoki-Italic.ttf"),
    _package(
        "fonts-open-sans", "Apache-2.0", "OpenSans-Light.ttf OpenSans-Bold.ttf OpenSans-Italic.ttf"
    ),
    _package("fonts-play", OFL, "Play-Regular.ttf"),
    _package("fonts-quicksand", OFL, "Quicksand-Light.ttf Quicksand-Bold.ttf"),
    _package("fonts-rufscript", GPL, "Rufscript010.ttf"),
    _package("fonts-seto", OFL, "setofont.ttf"),
    _package("fonts-sil-andika", OFL, "Andika-Regular.ttf Andika-BoldItalic.ttf"),
    _package("fonts-sil-gentiumplus", OFL, "GentiumPlus-Regular.ttf GentiumPlus-Italic.ttf"),
    _package("fonts-yusei-magic", OFL, "YuseiMagic-Regular.ttf"),
)
"""Printed and handwritten Latin faces; all have the digits and both cases of the letters."""

NON_LATIN: tuple[Package, ...] = (
    _package("fonts-klee", OFL, "KleeOne-Regular.ttf KleeOne-SemiBold.ttf"),
    _package("fonts-seto", OFL, "setofont.ttf"),
    _package("fonts-yusei-magic", OFL, "YuseiMagic-Regular.ttf"),
    _package(
        "fonts-noto-core",
        OFL,
        " ".join(
            f"Noto{style}{script}-{weight}.ttf"
            for script in ("Armenian", "Devanagari", "Georgian", "Hebrew", "Thai")
            for style in ("Sans", "Serif")
            for weight in ("Regular", "Bold")
        ),
    ),
)
"""Faces of other scripts; each face covers one or two of them."""


def find_faces(folder: Path, packages: tuple[Package, ...]) -> list[Path]:
    """Locate the files of ``packages`` anywhere below ``folder``, in the order of the list.

    Raises
    ------
    FileNotFoundError
        If files are missing, with the names of their packages; training without them would give
        different models.
    """
    found = {path.name: path for path in sorted(folder.rglob("*.[ot]tf"))}
    missing = [p.name for p in packages if any(face not in found for face in p.faces)]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks faces of {', '.join(missing)}; unpack these Debian packages into it"
        )
    return [found[face] for package in packages for face in package.faces]
