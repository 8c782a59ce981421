"""A few hundred cases of what `make fuzz` tries by the thousand, the same ones every time."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import artefacts, configurations, interruptions
from tests.fuzz.__main__ import run_case

# Without an example that failed before: nothing is written into the tree.
FEW = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def check(case):
    verdict = run_case(case)
    assert not verdict.outcome.is_forbidden, f"{verdict.outcome.value}: {verdict.detail}\n{case}"


@settings(FEW, max_examples=150)
@given(configurations.cases())
def test_a_configuration_with_mistakes_is_refused_or_trained(case):
    check(case)


@settings(FEW, max_examples=80)
@given(artefacts.cases())
def test_a_damaged_artefact_is_refused_or_does_no_harm(case):
    check(case)


@pytest.mark.parametrize("work", interruptions.WORKS)
def test_a_command_that_was_killed_gives_the_same_results_when_it_is_repeated(work):
    for case in interruptions.spread(list(interruptions.kills(work)), 4):
        check(case)


@pytest.mark.parametrize("work", interruptions.WORKS)
def test_a_full_disk_loses_nothing(work):
    for case in interruptions.spread(list(interruptions.full_disks(work)), 3):
        check(case)
