"""The parts of the reference that are read off the code: every key of a configuration, every command and option."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from hurl.cli.app import app
from hurl.experiments.config import RunConfig
from hurl.experiments.fitting import GIVEN, find_kind, kind_names
from hurl.heuristics.network import Fitting
from hurl.schedules import KINDS as SCHEDULES

WORDS = {
    bool: "true or false",
    dict: "mapping",
    float: "number",
    int: "whole number",
    list: "list",
    Path: "path",
    str: "text",
}
SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}


def configuration() -> str:
    """Return a section for each mapping of a run's configuration."""
    return "\n\n".join(_section(path, model) for path, model in _models("", RunConfig))


def schedules() -> str:
    """Return a section for each kind of schedule."""
    return "\n\n".join(
        f"### `kind: {kind}`\n\n{_first_paragraph(cls)}\n\n"
        + _parameters(inspect.signature(getattr(cls, "for_run", cls)).parameters.values())
        for kind, cls in SCHEDULES.load().items()
    )


def heuristics() -> str:
    """Return a section for each kind of heuristic."""
    return "\n\n".join(
        f"### `kind: {kind}`\n\n{_first_paragraph(find_kind(kind))}\n\n{_fit_parameters(find_kind(kind))}"
        for kind in kind_names()
    )


def commands() -> str:
    """Return a section for each command."""
    group = typer.main.get_group(app)
    context = typer.Context(group, info_name="hurl")
    return "\n\n".join(_command(command, inner) for command, inner in _commands(group, context))


def _models(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for key, field in model.model_fields.items():
        for part in _parts(field.annotation):
            if _is_model(part):
                yield from _models(f"{path}.{key}".removeprefix("."), part)


def _section(path: str, model: type[BaseModel]) -> str:
    heading = f"## `{path}`" if path else "## The run"
    rows = [
        (
            f"`{key}`",
            _limited(field, f"{path}.{key}".removeprefix(".")),
            "*required*" if field.is_required() else _default(field),
            _meaning(field),
        )
        for key, field in model.model_fields.items()
    ]
    return f"{heading}\n\n{_first_paragraph(model)}\n\n{_table(('key', 'type', 'default', 'meaning'), rows)}"


def _meaning(field: FieldInfo) -> str:
    """Return a field's description, or that of the mapping that it holds."""
    described = (_first_paragraph(part) for part in _parts(field.annotation) if _is_model(part))
    return field.description or next(described, "")


def _limited(field: FieldInfo, path: str) -> str:
    """Return a field's type and the limits of its values."""
    limits = [
        f"{SIGNS[type(limit)]} {dataclasses.astuple(limit)[0]}" for limit in field.metadata if type(limit) in SIGNS
    ]
    types = [_type(part, path) for part in _parts(field.annotation) if part is not type(None)]
    return ", ".join([" or ".join(dict.fromkeys(types)), *limits])


def _type(annotation: Any, path: str) -> str:
    if _is_model(annotation):
        return f"[mapping](#{path.replace('.', '')})"
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    return WORDS.get(get_origin(annotation) or annotation, "text")


def _parts(annotation: Any) -> list[Any]:
    """Return the types of which a value may be one."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for option in get_args(annotation) for part in _parts(option)]
    return [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None:
        return "none"
    return f"`{json.dumps(value.model_dump(mode='json') if isinstance(value, BaseModel) else value)}`".replace('"', "")


def _first_paragraph(thing: Any) -> str:
    text, _, _ = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")
    return " ".join(text.split())


def _fit_parameters(cls: type[Any]) -> str:
    if not hasattr(cls, "fit"):
        return "It is taken from an agent, and has no parameters: `hurl fit` with `--run`."
    signature = inspect.signature(cls.fit).parameters
    own = [p for p in signature.values() if p.kind is p.KEYWORD_ONLY and p.name not in GIVEN]
    fitting = inspect.signature(Fitting).parameters.values() if "fitting" in signature else ()
    more = "\n\nFurther parameters are those of what it is made of." if "options" in signature else ""
    return _parameters([*own, *(p for p in fitting if p.name not in {q.name for q in own})]) + more


def _parameters(parameters: Iterable[inspect.Parameter]) -> str:
    kept = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not kept:
        return "It has no parameters."
    rows = [
        (f"`{p.name}`", "*required*" if p.default is p.empty and p.name != "iterations" else _parameter_default(p))
        for p in kept
    ]
    return _table(("parameter", "default"), rows)


def _parameter_default(parameter: inspect.Parameter) -> str:
    if parameter.name == "iterations":
        return "the run's own"
    return "none" if parameter.default is None else f"`{parameter.default}`"


def _commands(group: TyperGroup, context: typer.Context) -> Iterator[tuple[TyperCommand | TyperGroup, typer.Context]]:
    for name in group.list_commands(context):
        command: Any = group.get_command(context, name)
        if not command.hidden:
            inner = typer.Context(command, parent=context, info_name=name)
            yield command, inner
            if isinstance(command, TyperGroup):
                yield from _commands(command, inner)


def _command(command: TyperCommand | TyperGroup, context: typer.Context) -> str:
    with contextlib.redirect_stdout(io.StringIO()):
        command.get_help(context)  # some help texts are made when they are asked for
    assert command.callback is not None
    annotations = inspect.signature(command.callback, eval_str=True).parameters
    rows = [
        (_written(parameter, annotations[parameter.name].annotation), _parameter_help(parameter, context))
        for parameter in command.params
        if isinstance(parameter, TyperArgument | TyperOption) and not parameter.hidden and parameter.name in annotations
    ]
    described = " ".join((command.help or "").split())
    table = _table(("argument or option", ""), rows)
    return "\n\n".join([f"## `{context.command_path}`", described, table, _examples(command.epilog)])


def _examples(epilog: str | None) -> str:
    """Return the examples that a command's help ends with, a line each."""
    examples = (epilog or "").partition(":")[2].replace(",  then  ", "|").split("|")
    return "\n".join(["```bash", *(" ".join(example.split()) for example in examples), "```"]) if epilog else ""


def _written(parameter: TyperArgument | TyperOption, annotation: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return f"`{parameter.metavar or str(parameter.name).upper()}`"
    names = " / ".join([*parameter.opts, *parameter.secondary_opts])
    return f"`{names}`" if parameter.is_flag else f"`{names} {parameter.metavar or _value(annotation)}`"


def _value(annotation: Any) -> str:
    """Return what stands for an option's value: its choices, or PATH, NUMBER, TEXT."""
    kind = next(part for part in _parts(annotation) if part is not type(None))
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return WORDS.get(get_origin(kind) or kind, "text").upper().removeprefix("WHOLE ")


def _parameter_help(parameter: TyperArgument | TyperOption, context: typer.Context) -> str:
    text = " ".join((parameter.help or "").split())
    if parameter.required:
        return f"{text} *Required.*"
    default = parameter.get_default(context, call=False)
    if default in (None, False, (), []) or "default" in text:
        return text
    return f"{text} `{default}` by default."


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(headings)]
    lines += [["---"] * len(lines[0]), *([" ".join(cell.split()) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
