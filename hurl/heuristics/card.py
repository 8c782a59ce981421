"""The model card that is saved with a heuristic: what it is, what it was made from, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping

from hurl.heuristics.base import KINDS, StorableHeuristic

TEXT = """\
---
library_name: hurl
tags: [reinforcement-learning, heuristic]
---

# {name}

A heuristic h(s) for heuristic-guided reinforcement learning: an estimate of the discounted return from a state on.

| | |
|---|---|
{facts}

## How it fits

{metrics}

## Use

```python
import hurl

h = hurl.load_heuristic("the path of this folder")
guidance = hurl.Guidance(h, gamma={gamma})
```

`config.json` describes it, `weights.safetensors` holds its arrays; neither is a pickle. Judge it with data before it
guides a run: `hurl diagnose`. Where the data has not been, h is a guess.

## Licence

It is bound to the licence of what it was made from, which is not known here.
"""


def model_card(heuristic: StorableHeuristic, versions: Mapping[str, str | None]) -> str:
    """Return the card of a heuristic, in Markdown.

    :param versions: of the packages that it was made with
    """
    name, dataset = type(heuristic).__name__, heuristic.dataset
    kinds = [kind for kind, cls in KINDS.items() if cls is type(heuristic)]
    facts = {
        "kind": f"{name}, `{'`, `'.join(kinds)}`" if kinds else name,
        "discount γ": "any" if heuristic.gamma is None else f"{heuristic.gamma}",
        "observations": "any" if heuristic.observation_space is None else f"{heuristic.observation_space}",
        "data": "none" if dataset is None else f"`{dataset['id']}`, hash `{dataset['digest']}`",
        "made with": ", ".join(f"{package} {found}" for package, found in versions.items() if found is not None),
    }
    metrics = [f"| {metric} | {value:.6g} |" for metric, value in heuristic.metrics.items()]
    return TEXT.format(
        name=name,
        facts="\n".join(f"| {fact} | {value} |" for fact, value in facts.items()),
        metrics="\n".join(["| | |", "|---|---|", *metrics]) if metrics else "Nothing was measured.",
        gamma="…" if heuristic.gamma is None else heuristic.gamma,
    )
