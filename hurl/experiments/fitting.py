"""From the name of a kind of heuristic to one fitted to a dataset."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from hurl.data import TimeLimit, load_episodes
from hurl.experiments.errors import ConfigurationError
from hurl.heuristics.base import KINDS, FitReport, StorableHeuristic
from hurl.heuristics.network import Fitting
from hurl.names import nearest, nearest_or_all
from hurl.values import NOTHING, TEXT, Kinds, check_values, number, whole, word

MAKERS = {"fit": "data", "from_agent": "an agent"}  # class methods that make a heuristic, and what from
GIVEN = ("dataset", "gamma", "root", "report")  # arguments of `fit` that are no parameters of the kind
# What parameters of hurl's own kinds may be, by their names, beside those of `Fitting`, which looks itself.
VALUES: Kinds = {
    "beta": number(0) | NOTHING,
    "latent": whole(1),
    "members": whole(2),
    "of": TEXT,
    "percentile": number(0, 100, above=True),
    "prior": number(0),
    "seed": whole(0, 2**63),
    "steps": whole(1),
    "time_limit": word(*get_args(TimeLimit)),
    "vae_epochs": whole(1),
    "validation": number(0, 1, below=True),
}


def fit_heuristic(
    kind: str,
    dataset: Any,
    *,
    gamma: float,
    parameters: Mapping[str, Any] | None = None,
    root: Path | None = None,
    report: FitReport | None = None,
) -> StorableHeuristic:
    """Fit a heuristic to a dataset.

    :param kind: one of those that are registered, such as `ensemble`
    :param dataset: a Minari dataset, its id, or episodes
    :param gamma: γ, the discount that its values are for
    :param parameters: further arguments of the kind's `fit`
    :param root: the folder of Minari datasets, None for the user's own
    :param report: called as fitting goes on
    """
    parameters = dict(parameters or {})
    cls = check_fit(kind, parameters)
    if report is not None and "report" in inspect.signature(cls.fit).parameters:
        parameters["report"] = report
    heuristic: StorableHeuristic = cls.fit(load_episodes(dataset, root), gamma=gamma, **parameters)
    return heuristic


def check_fit(kind: str, parameters: Mapping[str, Any]) -> type[Any]:
    """Refuse a kind, a parameter or a value that can't be, and the lack of what it needs; return the kind's class.

    It is asked before data is made for the fit.
    """
    cls = find_kind(kind, ["fit"])
    signature = inspect.signature(cls.fit).parameters
    own = {name: parameter for name, parameter in signature.items() if parameter.kind is parameter.KEYWORD_ONLY}
    known = [*own, *(field.name for field in fields(Fitting) if "fitting" in signature)]
    known = [name for name in known if name not in GIVEN]
    for name in parameters:
        if name in GIVEN or (name not in known and "options" not in signature):
            raise ConfigurationError(f"{kind} has no parameter {name!r}{nearest(name, known)}")
    for name, parameter in own.items():
        if parameter.default is parameter.empty and name != "gamma" and name not in parameters:
            raise ConfigurationError(f"{kind} needs the parameter {name!r}: give it with --set {name}=…")
    if cls.__module__.startswith("hurl."):
        _check_values(kind, {name: value for name, value in parameters.items() if name in known})
        if "validation" in own:
            _check_held_out(kind, {name: parameter.default for name, parameter in own.items()} | dict(parameters))
    if "of" in own:  # what is not its own is for the kind that it is made of
        rest = {name: value for name, value in parameters.items() if name not in own}
        check_fit(parameters.get("of", own["of"].default), rest)
    return cls


def _check_values(kind: str, parameters: Mapping[str, Any]) -> None:
    network = {field.name for field in fields(Fitting)}
    try:
        check_values(parameters, VALUES)
        Fitting(**{name: value for name, value in parameters.items() if name in network})
    except ValueError as error:
        raise ConfigurationError(f"{kind} can't be fitted so: {error}") from None


def _check_held_out(kind: str, values: Mapping[str, Any]) -> None:
    """Refuse to choose or to stop by held-out episodes where none are held out."""
    if values.get("validation", 1.0) > 0:
        return
    if values.get("beta", 0.0) is None:
        raise ConfigurationError(f"{kind} chooses beta by held-out episodes, of which validation=0 has none: set beta")
    if values.get("patience") is not None:
        raise ConfigurationError(f"{kind} can't stop early by held-out episodes, of which validation=0 has none")


def find_kind(kind: str, makers: Collection[str] = MAKERS) -> type[Any]:
    """Return the class of a kind; refuse one that is not among `kind_names`."""
    names = kind_names(makers)
    if kind not in names:
        problem = f"there is no kind of heuristic {kind!r}"
        if kind in KINDS:
            problem = f"a heuristic of kind {kind!r} is not made from {' or '.join(MAKERS[maker] for maker in makers)}"
        raise ConfigurationError(f"{problem}{nearest_or_all(kind, names)}")
    return KINDS[kind]


def kind_names(makers: Collection[str] = MAKERS) -> list[str]:
    """Return the kinds that are made by one of some class methods."""
    return sorted(name for name, cls in KINDS.load().items() if any(hasattr(cls, maker) for maker in makers))
