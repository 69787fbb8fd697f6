"""Reading settings: flags override ``catro.toml``, which overrides recipes, which override defaults.

An unknown key is rejected. A recipe named by a flag also overrides the file: every key that any recipe sets then gets
the value of the named recipe, or else the default.
"""

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError as PydanticError

from catro_deploy.errors import SettingsError
from catro_deploy.files import require_utf8
from catro_deploy.settings.catalog import section_model
from catro_deploy.settings.names import read_class_names, read_labels
from catro_deploy.settings.recipes import RECIPES
from catro_deploy.settings.section import IMAGENET, TRANSFORMERS
from catro_deploy.settings.tree import Settings
from catro_deploy.suggestions import did_you_mean
from catro_deploy.toml import parse_toml, toml_mistake, toml_tables, toml_text

__all__ = ["load_settings", "read_document", "settings_from_text", "settings_text"]

# Values of recipes that depend on the images and on each other; ``follow_recipe`` sets them.
_DECIDED_LATER = {"distill", "distill_features"}
HINTS = {
    "flags": "All keys with their defaults: catro-deploy init --print",
    "keywords": "All keywords with their defaults: the page Python API in the documentation.",
}
_PATHS = (("model", "checkpoint"), ("data", "root"))


def load_settings(
    file: Path | None,
    flags: Mapping[str, Mapping[str, Any]],
    *,
    given_as: Literal["flags", "keywords"] = "flags",
) -> Settings:
    """Merge ``flags``, ``file`` and the defaults, in this order of precedence.

    Flags map sections to keys to values; None means not given. In the Python API they are keywords.

    Relative paths in the file, and the defaults of paths that it does not set, are relative to the file's folder; paths
    in flags are relative to the working folder. This includes files of class names and the folder of a model.

    Raises:
        SettingsError: the file does not exist or is not TOML, a key is unknown, or a value is invalid.
    """
    content = _read(file) if file else {}
    given_flags = {section: {k: v for k, v in values.items() if v is not None} for section, values in flags.items()}
    _read_names_(given_flags, Path())
    for section, given in given_flags.items():
        table = content.get(section, {})
        if given and isinstance(table, dict):
            decided = _decided_by_recipes(section) if "recipe" in given else set()
            content[section] = {key: value for key, value in table.items() if key not in decided} | given
    _follow_recipes_(content)
    try:
        settings = Settings.model_validate(content)
    except PydanticError as error:
        raise SettingsError(_explain(error, file, given_as), HINTS[given_as]) from None
    for section, key in _PATHS:
        require_utf8(getattr(getattr(settings, section), key).absolute(), SettingsError)
    if settings.prune.worth == "measured" and not settings.prune.reconstruct:
        raise SettingsError(
            'worth = "measured" needs reconstruct = true: it measures the loss after layers have been reconstructed.',
            'Leave reconstruct at its default, true, or worth at its own, "auto" ([prune] in catro.toml).',
        )
    return settings


def _follow_recipes_(content: dict[str, Any]) -> None:
    """Set the missing keys of each section by its recipe, except those that are decided later."""
    for section, recipes in RECIPES.items():
        table = content.get(section)
        if isinstance(table, dict) and isinstance(name := table.get("recipe"), str):
            decided = {key: value for key, value in recipes.get(name, {}).items() if key not in _DECIDED_LATER}
            content[section] = {**decided, **table}


def _decided_by_recipes(section: str) -> set[str]:
    return {key for recipe in RECIPES.get(section, {}).values() for key in recipe}


def settings_text(settings: Settings) -> str:
    """All of ``settings`` as TOML, with absolute paths, so that the file may be in any folder."""
    tables: dict[str, dict[str, Any]] = settings.model_dump(exclude_none=True)
    for section, key in _PATHS:
        tables[section][key] = Path(tables[section][key]).absolute()
    # The dump leaves 0 out, and these recipes would then clip again.
    if settings.finetune.max_grad_norm == 0 and settings.finetune.recipe in ("auto", "gentle"):
        tables["finetune"]["max_grad_norm"] = 0.0
    return toml_tables(tables)


def settings_from_text(text: str) -> Settings:
    """Read what ``settings_text`` has written; a key that it left out at its default may be set by the recipe."""
    content = parse_toml(text)
    _follow_recipes_(content)
    return Settings.model_validate(content)


def read_document(file: Path, again: str) -> dict[str, Any]:
    """The TOML document in ``file``; ``again`` says what to do if it cannot be read.

    Raises:
        SettingsError: it does not exist or is not TOML; the message shows the wrong line.
    """
    try:
        text = toml_text(file)
        return parse_toml(text)
    except FileNotFoundError:
        raise SettingsError(f"There is no {file}.", again) from None
    except tomllib.TOMLDecodeError as error:
        line, meant = toml_mistake(text, error)
        hint = f"Did you mean: {meant}" if meant else f"Correct the line. {again}"
        raise SettingsError(f"{file} cannot be read: {error}.\n    {line}", hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}.", f"Correct it. {again}") from None


def _read(file: Path) -> dict[str, Any]:
    content = read_document(file, "Write one: catro-deploy init")
    for section, key in _PATHS:
        table = content.setdefault(section, {})
        if key == "checkpoint" and isinstance(table, dict) and _decides_checkpoint(table) and key not in table:
            continue
        if isinstance(table, dict) and isinstance(path := table.get(key, _default(section, key)), str | Path):
            table[key] = str(file.parent / Path(path).expanduser())
    _read_names_(content, file.parent)
    return content


def _read_names_(content: Mapping[str, Any], folder: Path) -> None:
    """Replace the paths of files of class names by their content, and make a model's folder absolute.

    Relative paths are relative to ``folder``.
    """
    model, data = content.get("model"), content.get("data")
    if isinstance(model, dict) and isinstance(name := model.get("name"), str) and name.startswith(TRANSFORMERS):
        path = folder / Path(name.removeprefix(TRANSFORMERS)).expanduser()
        model["name"] = f"{TRANSFORMERS}{path.absolute()}"
    if isinstance(model, dict) and isinstance(names := model.get("classes"), str) and names != IMAGENET:
        model["classes"] = int(names) if names.isdecimal() else read_class_names(folder / Path(names).expanduser())
    if isinstance(data, dict) and isinstance(labels := data.get("labels"), str):
        data["labels"] = read_labels(folder / Path(labels).expanduser())


def _decides_checkpoint(model: Mapping[str, Any]) -> bool:
    """Whether the checkpoint follows from published weights, or from the folder of the model."""
    return "weights" in model or str(model.get("name")).startswith(TRANSFORMERS)


def _default(section: str, key: str) -> Path:
    default: Path = getattr(getattr(Settings(), section), key)
    return default


def _explain(error: PydanticError, file: Path | None, given_as: str) -> str:
    lines = {}  # one per place: pydantic reports every member of a union
    for problem in error.errors():
        keys = list(itertools.takewhile(lambda part: isinstance(part, str), problem["loc"]))[:2]
        place = ".".join(map(str, keys))
        if problem["type"] == "extra_forbidden":
            lines[place] = f"{place} is not a setting.{_suggestion([str(key) for key in keys])}"
        elif problem["type"] == "value_error":  # about a whole section, whose values would only be noise
            lines[place] = f"{place}: {problem['ctx']['error']}."
        else:
            quotes = " Write it in quotes." if problem["type"] == "string_type" else ""
            lines[place] = f"{place} = {problem['input']!r} does not fit: {problem['msg']}.{quotes}"
    return "\n".join([f"Wrong settings ({f'{file} and ' if file else ''}{given_as}):", *lines.values()])


def _suggestion(place: list[str]) -> str:
    keys = {section: list(section_model(section).model_fields) for section in Settings.model_fields}
    known = keys[place[0]] if len(place) > 1 else list(keys)
    if meant := did_you_mean(place[-1], known):
        return f" {meant}"
    homes = [f"[{section}]" for section in keys if place[-1] in keys[section]]
    return f" It belongs in {' or '.join(homes)}." if homes else ""
