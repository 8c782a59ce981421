"""What presets and YAML files say of runs, before it is checked, and how values of it are set anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from hurl.experiments.errors import ConfigurationError
from hurl.experiments.yaml_text import parse_yaml
from hurl.files import read_regular
from hurl.names import is_yaml, nearest, nearest_or_all
from hurl.schedules import KINDS as SCHEDULES
from hurl.schedules import parameter_names

OPTION = "--set"  # with which values are set anew on the command line

# Under these keys is a `kind`, which says what further keys there may be beside it.
SCHEDULE = "guidance.schedule"
OF_A_KIND = (SCHEDULE, "guidance.heuristic")
KIND = "kind"
VARIANTS = "variants"  # the key of a preset, or of a user's file, under which are several runs


def preset_names() -> list[str]:
    """Return the presets, each with its variants: `sparse-reacher/hurl`, …"""
    return [f"{name}/{variant}" for name, preset in _presets().items() for variant in preset["variants"]]


def preset_description(name: str) -> str:
    """Return what a preset says of itself."""
    return str(_presets()[name.split("/")[0]]["description"])


def variant_names(source: str) -> list[str]:
    """Return the variants of a preset or of a YAML file, as `load_config` takes them; a file without any is its own.

    :param source: a preset, `hopper`, or the path of a YAML file
    """
    if not is_yaml(source):
        if source in preset_names():
            name, variant = source.split("/")
            raise ConfigurationError(f"{source!r} is a variant: write {name} --variants {variant}")
        if source not in _presets():
            raise ConfigurationError(f"there is no preset {source!r}{nearest_or_all(source, _presets())}")
    variants = _read_family(source).get(VARIANTS)
    return [source] if variants is None else [f"{source}/{name}" for name in variants]


def split_variant(source: str) -> tuple[str, str | None]:
    """Return the preset or the YAML file that a source is of, and which variant of it, where it names one."""
    family, _, variant = source.rpartition("/")
    return (family, variant) if family and not is_yaml(source) else (source, None)


def read_source(source: str) -> dict[str, Any]:
    """Return what a preset and its variant say of a run, or a YAML file and its variant, where it has several."""
    family, variant = split_variant(source)
    if not is_yaml(family) and source not in preset_names():
        variants = [name for name in preset_names() if name.startswith(f"{source}/")]
        if variants:
            raise ConfigurationError(f"{source!r} is several variants: write {' or '.join(variants)}")
        file = f"{family}.yaml"
        hint = f"; did you mean {file!r}?" if Path(file).is_file() else ""
        hint = hint or nearest(source, preset_names()) or "; `hurl presets` lists them, and a file's name ends in .yaml"
        raise ConfigurationError(f"there is no preset {source!r}{hint}")
    values = _read_family(family)
    values.pop("description", None)
    variants = values.pop(VARIANTS, None)
    if variants is None and variant is not None:
        raise ConfigurationError(f"{family} has no variants, of which {variant!r} could be one: write {family}")
    if variants is not None and variant is None:
        raise ConfigurationError(
            f"{family} is several variants: write {' or '.join(f'{family}/{name}' for name in variants)}, or run all "
            f"with `hurl campaign {family}`"
        )
    if variants is not None and variant not in variants:
        raise ConfigurationError(f"{family} has no variant {variant!r}{nearest_or_all(str(variant), variants)}")
    base = values.pop("extends", None)
    return merge(values if base is None else merge(read_source(base), values), (variants or {}).get(variant))


def _read_family(name: str) -> dict[str, Any]:
    """Return what the file of a preset, or of a user's own, holds."""
    if not is_yaml(name):
        return deepcopy(_presets()[name])
    path = Path(name)
    if not path.is_file():
        raise ConfigurationError(
            f"there is no file {name!r}: give a YAML file, or a preset such as {preset_names()[0]}"
        )
    values = parse_yaml(read_regular(path, follow_links=True), name)
    _check_family(values, name)
    return values


def _check_family(values: dict[str, Any], source: str) -> None:
    """Refuse variants that are no mappings of keys and values, or whose names can't be those of folders."""
    base = values.get("extends")
    if base is not None and base not in preset_names():
        hint = nearest_or_all(str(base), preset_names())
        raise ConfigurationError(f"{source}: extends must name a preset and its variant, got {base!r}{hint}")
    variants = values.get(VARIANTS)
    if VARIANTS not in values:
        return
    if not isinstance(variants, dict) or not variants:
        raise ConfigurationError(
            f"{source}: {VARIANTS} must hold names, each with what is other in it: got {variants!r}"
        )
    for name, changes in variants.items():
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.+-]*", name) or is_yaml(name):
            raise ConfigurationError(
                f"{source}: {name!r} can't be the name of a variant, and of its folder: use letters, digits and - . + _"
            )
        if not isinstance(changes, dict | None):
            raise ConfigurationError(f"{source}: the variant {name!r} must hold keys and values, got {changes!r}")


@cache
def _presets() -> dict[str, dict[str, Any]]:
    """Return the presets by name, as their files have them; read once, for a campaign loads hundreds of variants."""
    files = sorted(resources.files("hurl.experiments").joinpath("presets").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): parse_yaml(file.read_bytes(), file.name) for file in files}


def merge(
    base: dict[str, Any], changes: dict[str, Any] | None, *, only_existing: bool = False, place: str = ""
) -> dict[str, Any]:
    """Return `base` with `changes` put in, mappings merged key by key; of what is of another kind now, what that has.

    :param only_existing: whether a mapping goes only where there is one: a run without data gets none
    :param place: the dotted key of what is merged, with a dot behind it; nothing for a whole configuration
    """
    merged = dict(base)
    for key, value in (changes or {}).items():
        old, here = merged.get(key), f"{place}{key}"
        if isinstance(old, dict) and isinstance(value, dict):
            kept = _kept(here, old, value.get(KIND))
            merged[key] = merge(kept, value, only_existing=only_existing, place=f"{here}.")
        elif not (only_existing and isinstance(value, dict)):
            merged[key] = value
    return merged


def _kept(place: str, old: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Return what stays of a mapping whose kind is set: of a schedule what the new kind has too, of h nothing.

    :param kind: what it is to be; none where it is not set
    """
    if place not in OF_A_KIND or kind is None or kind == old.get(KIND):
        return old
    if place != SCHEDULE:
        return {}
    if not isinstance(kind, str) or kind not in SCHEDULES.load():
        return old  # it is refused where it is checked
    return {key: value for key, value in old.items() if key in parameter_names(kind)}


def apply_settings(values: dict[str, Any], settings: Iterable[str], origin: str = OPTION) -> dict[str, Any]:
    """Return values with some set anew in their order, `key=value` each, keys dotted, values YAML.

    A kind that is set keeps of the old one's parameters those that it has, see `merge`, and goes before those that are
    set too.

    :param origin: where they were written, which an error names
    """
    changed = dict(values)
    for setting in _kinds_first(settings):
        key, separator, text = setting.partition("=")
        if not separator or not key:
            raise ConfigurationError(f"{origin} {setting!r} is not of the form key=value")
        *parents, last = key.split(".")
        place = changed
        for parent in parents:
            child = place.get(parent)
            place[parent] = dict(child) if isinstance(child, dict) else {}
            place = place[parent]
        parsed = parse_yaml(f"value: {text}", f"{origin} {setting}")
        if len(parsed) > 1:
            raise ConfigurationError(f"{origin} {setting} sets more than one value: give each an option of its own")
        if last == KIND:
            kept = _kept(".".join(parents), dict(place), parsed["value"])
            place.clear()
            place.update(kept)
        place[last] = parsed["value"]
    return changed


def _kinds_first(settings: Iterable[str]) -> list[str]:
    """Return settings in their order, but that a kind comes before its own parameters."""
    ordered: list[str] = []
    for setting in settings:
        place, _, last = _key(setting).rpartition(".")
        index = len(ordered)
        if last == KIND and place in OF_A_KIND:
            above = ("guidance", place, f"{place}.{KIND}")  # what sets the kind, too
            while index and _key(ordered[index - 1]) not in above:
                index -= 1
        ordered.insert(index, setting)
    return ordered


def _key(setting: str) -> str:
    return setting.partition("=")[0]


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return dotted keys and their values as `key=value` each."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]


def as_text(value: Any) -> str:
    """Write a value as people do: 1e-05, 64, tanh."""
    return f"{value:g}" if isinstance(value, float) else str(value)
