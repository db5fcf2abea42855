"""Options of a run, and the file `oodzoo.toml`, which starts it again."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Unpack

from oodzoo.combining.evaluation.settings import require_seed, resolve_trials
from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, write_bytes
from oodzoo.core.limits import LimitOptions, Limits
from oodzoo.core.options import Compute, options_of, require_known
from oodzoo.core.text import did_you_mean, printable, typed
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.linear.heads.samples import require_classes_for
from oodzoo.ranking.constraints import TopK, parse_top_k
from oodzoo.ranking.policy import parse_budget
from oodzoo.ranking.ranker import as_score, require_score, require_score_of_task
from oodzoo.ranking.testbed.published import require_published
from oodzoo.tasks import Task


class RunOptions(LimitOptions, total=False):
    engine: str
    address: str | None


@dataclass(frozen=True, init=False)
class RunConfig:
    """Options of a run, checked before it starts.

    Attributes
    ----------
    top_k, score, protocol, baselines, seed, max_models, max_ms, published
        See :func:`oodzoo.evaluate`.
    max_parameters, licence
        Extract and use only models that meet these constraints, see :func:`oodzoo.load_zoo`.
    engine, address
        Where models run, heads are trained and held-out domains are judged.
    extraction : ExtractionConfig
        See :func:`oodzoo.extract`.
    testbed : bool
        Compare the scores on these models, too.
    race : bool
        Drop models early, see :func:`oodzoo.ranking.racing.race`.
    budget : float or str, optional
        Time for the extraction, in seconds or as "30m"; implies `race`.
    """

    top_k: TopK
    score: str
    protocol: Literal["fast", "domainbed"]
    baselines: bool
    seed: int
    limits: Limits
    published: str | None
    compute: Compute
    extraction: ExtractionConfig
    testbed: bool
    race: bool
    budget: float | str | None

    def __init__(
        self,
        top_k: TopK = 3,
        score: str = "unseen",
        protocol: Literal["fast", "domainbed"] = "fast",
        baselines: bool = True,
        seed: int = 0,
        *,
        published: str | None = None,
        extraction: ExtractionConfig | None = None,
        testbed: bool = False,
        race: bool = False,
        budget: float | str | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        require_known("RunConfig", options, RunOptions)
        parse_top_k(top_k)
        resolve_trials(protocol)
        require_score(score)
        require_seed(seed)
        limits = options_of(Limits, options)
        extraction = extraction or ExtractionConfig()
        compute = options_of(Compute, {"device": extraction.device, **options})
        if budget is not None:
            parse_budget(budget)
        given = locals()
        self.__dict__.update({field.name: given[field.name] for field in fields(self)})

    @property
    def settings(self) -> dict[str, Any]:
        """The options as the record of a run has them."""
        found: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name == "limits":
                found |= {field.name: value[field.name] for field in fields(Limits)}
            elif name == "compute":
                found["engine"] = value["engine"]
            else:
                found[name] = value
        return found

    def require_possible(self, task: Task, *, target: bool) -> None:
        """Raise an InputError if an option, or a target, is not for this task."""
        require_score_of_task(as_score(self.score), task)
        if self.protocol == "domainbed":
            require_classes_for(task, "the protocol 'domainbed'")
        if target:
            require_classes_for(task, "a target")
        if self.published is not None:
            require_published(self.published, task)

    @property
    def is_race(self) -> bool:
        """Whether models are dropped early."""
        return self.race or self.budget is not None

    @property
    def compute_device(self) -> str | None:
        """Where to compute on moments: NumPy, unless a CUDA device was named."""
        return self.compute.arrays if self.extraction.device.startswith("cuda") else None

    @property
    def evaluation_device(self) -> str | None:
        """Where to evaluate: as above, or on several devices."""
        device = self.extraction.device
        return device if device.startswith("cuda") or "," in device else None


CONFIG_FILE = "oodzoo.toml"

_WIDTH = 100
_HEADER = """\
# The options of a run of oodzoo. To start it again, or with other options:
#   oodzoo run --config {path}
# Options on the command line win. Paths are relative to the folder in which the command is started;
# they are as they were given, so look at this file before you share it. Passwords are left out.
"""

_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*):[^\s/?#]*@")
_SECRET = re.compile(
    r"([?&](?:[^=&\s]*(?:password|passwd|pwd|secret|token|signature|credential|key)[^=&\s]*|sig)=)"
    r"[^&\s#]+",
    re.IGNORECASE,
)

Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class FileOption:
    """An option of a command, as it is written in a file.

    Attributes
    ----------
    key : str
    kind : {"text", "integer", "number", "flag", "texts"}
    help : str
    several : bool
        Whether a text may have several parts, which may be given as a list.
    """

    key: str
    kind: Literal["text", "integer", "number", "flag", "texts"]
    help: str = ""
    several: bool = False


def config_text(
    path: str, options: Sequence[FileOption], values: Mapping[str, Value | None]
) -> str:
    """Write options as TOML; those without a value are comments.

    Examples
    --------
    >>> options = [FileOption("zoo", "text", "The models."), FileOption("limit", "integer")]
    >>> print(config_text("job/oodzoo.toml", options, {"zoo": "demo"}).partition("out.\\n")[2])
    <BLANKLINE>
    # The models.
    zoo = "demo"
    <BLANKLINE>
    # limit =
    <BLANKLINE>
    """
    parts = [_HEADER.format(path=printable(typed(path)))]
    for option in options:
        value = values.get(option.key)
        lines = [f"# {line}" for line in _wrapped(option.help)]
        if value is None:
            lines.append(f"# {option.key} =")
        else:
            lines.append(f"{option.key} = {_toml(without_secrets(value))}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def write_config(
    path: Path, options: Sequence[FileOption], values: Mapping[str, Value | None]
) -> None:
    """Write options to a file; one that has the same values is left as it is."""
    given = {key: without_secrets(value) for key, value in values.items() if value is not None}
    if path.is_file():
        try:
            if read_config(path, options) == given:
                return  # it may have comments of its owner
        except InputError:
            pass
    with explaining_disk_errors(path):
        write_bytes(path, config_text(str(path), options, values).encode())


def read_config(path: Path, options: Sequence[FileOption]) -> dict[str, Value]:
    """Read the options that a file gives.

    Raises
    ------
    InputError
        If the file cannot be read, an option is unknown, or its value is of another type.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a TOML file: {error}") from None
    known = {option.key: option for option in options}
    found: dict[str, Value] = {}
    for given, value in content.items():
        key = given.replace("-", "_")
        if key not in known:
            hint = did_you_mean(key, known) or "oodzoo run --help lists the options"
            raise InputError(f"unknown option {given!r} in {str(path)!r}; {hint}")
        if key in found:
            raise InputError(f"the option {key!r} is given twice in {str(path)!r}")
        found[key] = _checked(known[key], value, path)
    return found


def without_secrets(value: Value) -> Value:
    """Leave out passwords and keys in URIs.

    Examples
    --------
    >>> without_secrets("postgresql://ada:secret@host/db")
    'postgresql://ada@host/db'
    """
    if isinstance(value, list):
        return [str(without_secrets(each)) for each in value]
    if not isinstance(value, str):
        return value
    return _SECRET.sub(r"\1", _PASSWORD.sub(r"\1@", value))


_EXPECTED = {
    "text": "text in quotes",
    "integer": "an integer",
    "number": "a number",
    "flag": "true or false",
    "texts": "a list of texts in quotes",
}


def _checked(option: FileOption, value: Any, path: Path) -> Value:
    """The value of an option, in the type that the command line has."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if option.kind == "flag" and isinstance(value, bool):
        return value
    if option.kind == "integer" and number and isinstance(value, int):
        return value
    if option.kind == "number" and number:
        return float(value)
    if option.kind == "text" and (isinstance(value, str) or number):
        return str(value)
    if option.kind == "text" and option.several and _is_list(value, str | int):
        return ",".join(map(str, value))
    if option.kind == "texts" and _is_list(value, str):
        return list(value)
    raise InputError(
        f"the option {option.key!r} in {str(path)!r} must be {_EXPECTED[option.kind]}, got "
        f"{value!r}"
    )


def _is_list(value: Any, kind: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, kind) and not isinstance(each, bool) for each in value)


def _toml(value: Value) -> str:
    """A value as TOML; a JSON string is one, except for a few characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text.replace("\x7f", "\\u007f").encode(errors="replace").decode()
    return repr(value)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(" ".join(text.split()), _WIDTH - 2)
