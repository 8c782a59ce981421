"""The card that is written beside a collected dataset: what it holds, what it was made from, and how it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hurl.files import package_versions

if TYPE_CHECKING:
    from minari import MinariDataset

    from hurl.data.collect import PolicySummary

TEXT = """\
# {id}

{description}, rolled out by hurl. A [Minari](https://minari.farama.org) dataset.

| | |
|---|---|
{facts}

The last episode of a policy is cut where its share is reached; its metadata says `cut`.

| policy | return | episodes | transitions |
|---|---:|---:|---:|
{policies}

## Use

```python
import hurl.data

episodes = hurl.data.load_episodes("{id}")
```

## Licence

It is bound to the licences of the environment and of the policies, which are not known here.
"""


def dataset_card(
    dataset: MinariDataset, policies: Iterable[PolicySummary], environment: Mapping[str, Any], seed: int
) -> str:
    """Return the card of a dataset, in Markdown.

    :param policies: what it holds of each
    :param environment: what tells the environments from others
    :param seed: of the collection
    """
    versions = (f"{package} {found}" for package, found in package_versions().items() if found is not None)
    facts = {
        "environment": ", ".join(f"{key} {value}" for key, value in environment.items()) or "not named",
        "observations": dataset.observation_space,
        "actions": dataset.action_space,
        "transitions": f"{dataset.total_steps:,} in {dataset.total_episodes:,} episodes",
        "seed": seed,
        "made with": ", ".join(versions),
    }
    rows = (
        f"| {policy.name} | {policy.return_mean:.6g} | {policy.episodes:,} | {policy.transitions:,} |"
        for policy in policies
    )
    return TEXT.format(
        id=dataset.id,
        description=dataset.storage.metadata["description"],
        facts="\n".join(f"| {fact} | {value} |" for fact, value in facts.items()),
        policies="\n".join(rows),
    )
