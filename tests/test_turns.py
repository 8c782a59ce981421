"""Who acts for how long: what the bandit is told of, and what is warned of."""

import pickle
import warnings

import numpy as np
import pytest

import hurl
from hurl.ladder import PATIENCE, Bandit
from hurl.turns import Turns

LADDER = hurl.Ladder(0.5, 1.0)
PER_ITERATION = 4


def turns_of(steps_per_iteration=PER_ITERATION):
    turns = Turns(Bandit(LADDER), steps_per_iteration)
    turns.bandit.seed(0)
    return turns


def step(turns, *ended):
    turns.observe(np.ones(len(ended)), np.array(ended, bool))
    if turns.steps % turns.steps_per_iteration == 0:
        turns.end_iteration()


def test_a_turn_ends_where_one_environment_never_does():
    turns, acted = turns_of(), []

    def roll_out():
        for time in range(400):
            acted.append(turns.take(4))
            step(turns, *[time % 5 == 4] * 3, False)

    with pytest.warns(UserWarning, match=r"1 of 4 environments have ended no episode in 80 steps.* a time limit"):
        roll_out()
    assert np.bincount(acted).tolist() == [200, 200]  # by turns of as many iterations as a decision may take
    assert np.isfinite(turns.bandit.means).all()


def test_episodes_that_never_end_are_warned_of_after_random_steps_too():
    turns, goes_on = turns_of(), [False] * 4
    for _ in range(30):  # more than are patiently waited for
        turns.act_without_rungs(4)
        step(turns, *goes_on)
    assert turns.steps == 0
    for _ in range(PATIENCE - 1):
        turns.acting(4)
        step(turns, *goes_on)
    with pytest.warns(UserWarning, match="no episode with a finite return has ended in 80 steps"):
        step(turns, *goes_on)


def test_too_few_steps_are_warned_of_once():
    turns = turns_of()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            turns.check_length(4)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("4 steps are fewer than 4 iterations of 4, by which a ladder judges")


def test_a_reset_in_a_turn_leaves_the_rung():
    turns = turns_of(100)
    rung = turns.take(2)
    step(turns, True, False)
    turns.abandon(in_turn=True)
    assert (turns.acting(2) == rung).all()
    step(turns, False, True)  # the other has ended one, so that nothing is awaited
    assert turns.take(2) != rung
    assert turns.bandit.state()["current"][rung] == [1.0, 1.0]
    assert turns.cut_off == 1


def test_what_was_stepped_by_others_tells_nothing():
    turns = turns_of(100)
    rung = turns.take(1)
    step(turns, False)
    turns.miss()
    step(turns, True)
    assert turns.bandit.state()["current"][rung] == []
    step(turns, True)
    assert turns.bandit.state()["current"][rung] == [1.0]


def test_of_rungs_that_are_owed_as_much_the_one_with_the_larger_share_is_next():
    bandit = Bandit(hurl.Ladder(0.2, 0.5, 1.0))
    bandit.seed(0)
    assert {bandit.most_behind(np.zeros(3)) for _ in range(50)} == {0, 1, 2}
    bandit.decided = 1
    assert {bandit.most_behind(np.zeros(3)) for _ in range(50)} == {1}
    assert bandit.most_behind(np.array([0.0, -1.0, 2.0])) == 2


def test_it_goes_on_from_the_state_of_an_earlier_version():
    turns = turns_of()
    for _ in range(8):
        turns.take(2)
        step(turns, True, True)
    earlier = {"steps": 16, "cut_off": 3, "bandit": turns.state()["bandit"]}
    other = turns_of()
    other.restore(earlier)
    assert (other.steps, other.cut_off) == (16, 3)
    assert other.bandit.state() == turns.bandit.state()
    assert other.take(2) in (0, 1)


@pytest.mark.parametrize("schedule", [LADDER, hurl.ConstantSchedule(0.5)])
def test_a_guidance_that_an_earlier_version_pickled_has_its_bandit(schedule):
    guidance = hurl.Guidance(np.sum, schedule, gamma=0.9)
    earlier = vars(guidance) | {"bandit": None if guidance.turns is None else guidance.turns.bandit}
    del earlier["turns"]
    loaded = hurl.Guidance.__new__(hurl.Guidance)
    loaded.__setstate__(earlier)
    assert (loaded.bandit is None) == (guidance.bandit is None)
    assert repr(loaded) == repr(guidance) == repr(pickle.loads(pickle.dumps(guidance)))
