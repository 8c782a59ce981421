"""The ladder: its rungs, and the bandit that chooses among them."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hurl
from hurl.ladder import Bandit, rungs_for


def episodes_of(bandit, rewards, blocks, per_block=10, seed=0):
    """Let a bandit choose episodes whose returns are normal around each rung's own; return the rungs in order."""
    generator, chosen = np.random.default_rng(seed), []
    bandit.seed(seed)
    for _ in range(blocks):
        for _ in range(per_block):
            chosen.append(bandit.choose())
            bandit.add(chosen[-1], generator.normal(rewards[chosen[-1]], 1.0))
        bandit.close_block()
    return np.array(chosen)


@pytest.mark.parametrize(
    ("rungs", "message"),
    [
        ((0.5,), r"last rung must be 1, .*: write Ladder\(0.5, 1.0\)"),
        ((1.0, 0.5), r"must rise, got \(1.0, 0.5\): write Ladder\(0.5, 1.0\)"),
        ((0.5, 0.5, 1.0), r"must rise, got .*: write Ladder\(0.5, 1.0\)"),
        ((0.9, 0.5), r"must rise, got \(0.9, 0.5\): write Ladder\(0.5, 0.9, 1.0\)"),
        ((-0.1, 1.0), r"a rung of a ladder must lie in \[0, 1\], got -0.1"),
        ((0.5, float("nan"), 1.0), r"a rung of a ladder must lie in \[0, 1\], got nan"),
    ],
)
def test_bad_rungs_are_named(rungs, message):
    with pytest.raises(ValueError, match=message):
        hurl.Ladder(*rungs)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"window must be a whole number from 4 to .*, got 3"):
        hurl.Ladder(0.5, 1.0, window=3)
    for exploration in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"exploration must be a number from 0 to below 1, got {exploration}"):
            hurl.Ladder(0.5, 1.0, exploration=exploration)
    with pytest.raises(TypeError, match=r"are numbers, got \[0.9, 1.0\]: write Ladder\(0.9, 1.0\)"):
        hurl.Ladder([0.9, 1.0])
    with pytest.raises(ValueError, match=r"a ladder is for shaping='hurl', .* not for 'pbrs': give it a schedule"):
        hurl.Guidance(lambda states: np.zeros(len(states)), hurl.Ladder(0.5, 1.0), gamma=0.9, shaping="pbrs")
    with pytest.raises(ValueError, match=r"gamma=1.0 gives no horizon .*: write Ladder\(0.9, 1.0\)"):
        hurl.Guidance(lambda states: np.zeros(len(states)), gamma=1.0)


@given(st.floats(0.01, 0.99999))
def test_rungs_shorten_the_horizon_to_its_power(gamma):
    guided, last = rungs_for(gamma)
    assert 0.0 <= guided < last == 1.0
    assert 1 / (1 - guided * gamma) == pytest.approx((1 / (1 - gamma)) ** 0.4)


def test_the_best_rung_acts_most_and_others_now_and_then():
    chosen = episodes_of(Bandit(hurl.Ladder(0.5, 0.8, 1.0)), (0.0, 5.0, 2.0), blocks=40)
    late = np.bincount(chosen[200:], minlength=3) / 200
    assert late[1] > 0.85
    assert (late > 0).all()


@pytest.mark.parametrize("best", [0, 1])
def test_as_long_as_it_is_open_all_rungs_learn_in_full_and_act_as_much(best):
    bandit, rewards = Bandit(hurl.Ladder(0.5, 1.0)), (3.0 * (best == 0), 3.0 * (best == 1))
    assert (bandit.best, bandit.decided, bandit.learners()) == (1, None, [0, 1])
    chosen = episodes_of(bandit, rewards, blocks=3, per_block=200)
    assert bandit.decided is None
    assert np.mean(chosen) == pytest.approx(0.5, abs=0.06)
    episodes_of(bandit, rewards, blocks=27)
    assert (bandit.best, bandit.decided) == (best, best)
    learners = [bandit.learners() for _ in range(80)]
    assert all(best in each for each in learners)
    assert sum(1 - best in each for each in learners) == 10


def told(*rungs):
    """A bandit of two rungs that was told the returns of each, block by block."""
    bandit = Bandit(hurl.Ladder(0.5, 1.0))
    bandit.seed(0)
    for block in zip(*rungs, strict=True):
        for rung, total in enumerate(block):
            bandit.add(rung, total)
        bandit.close_block()
    return bandit


def test_guidance_that_is_behind_at_first_is_given_time():
    base = [70.0, 100, 145, 205, 255, 300, 345, 375]
    behind = [70.0, 75, 105, 140, 185, 240, 260, 330]
    misled = [70.0, 60, 50, 45, 40, 40, 40, 45]
    assert told(behind, base).decided is None
    assert told(misled, base).decided == 1


def test_guidance_that_stays_behind_is_left():
    base = [70.0 + 30 * block + 5 * (block % 2) for block in range(24)]
    behind = [70.0 + 20 * block for block in range(24)]
    assert told(behind[:19], base[:19]).decided is None
    assert told(behind, base).decided == 1


def test_returns_that_fall_are_no_progress_of_lambda_one():
    base = [1000.0, 700, 620, 580, 620, 580, 620, 580, 620, 580]
    assert told([total - 2 for total in base], base).decided is None
    assert told([1000.0, 500, 300, 301, 299, 300, 301, 299, 300, 301], base).decided == 1


def test_guidance_that_fails_after_a_while_is_in_doubt():
    rises = [100.0 + 50 * block for block in range(20)]
    falls = [1000.0 - 100 * block for block in range(8)] + [300.0, 310, 290, 300]
    base = [100.0 + 5 * (block % 3) for block in range(32)]
    assert told(rises, base[:20]).decided == 0
    bandit = told(rises + falls, base)
    assert (bandit.best, bandit.decided) == (0, None)
    assert np.mean([bandit.choose() for _ in range(400)]) == pytest.approx(0.5, abs=0.08)
    assert told(rises[::-1], rises).decided == 1  # λ = 1 has nothing to give way to


def test_what_misleads_is_in_question_again_only_when_it_is_ahead_and_guidance_when_it_is_not_sure():
    base = [120.0, 160, 210, 220, 215, 230, 240, 270, 260, 300, 320, 280]
    left = [120.0, 60, 60, 120, 150, 140, 160, 190, 210, 240, 250, 260]
    assert told(left[:5], base[:5]).decided == 1
    nearly = told(left, base)
    assert (nearly.decided, nearly._is_best(1)) == (1, False)
    assert told(base[:8], left[:8]).decided == 0
    caught_up = told([*base, 290, 300, 310, 290, 300, 280], [*left, 270, 300, 300, 280, 310, 290])
    assert (caught_up.best, caught_up.decided) == (0, None)
    ahead = told([*left, 400, 450, 500, 550], [*base, 290, 300, 290, 300])
    assert (ahead.best, ahead.decided) == (0, None)
    assert told([*left, *[500.0 + block for block in range(8)]], [*base, *[300.0] * 8]).decided == 0


def test_a_lucky_start_is_forgotten():
    lucky = [1600.0, *(100.0 + block % 3 for block in range(60))]
    assert told(lucky, [50.0 + block % 2 for block in range(61)]).decided == 0


def test_shares_are_of_steps_and_not_of_episodes():
    bandit, steps = Bandit(hurl.Ladder(0.5, 1.0)), np.zeros(2)
    bandit.seed(0)
    for _ in range(4_000):  # guided episodes last ten times as long
        rung = bandit.choose()
        steps[rung] += (100, 10)[rung]
        bandit.add(rung, 0.0)
        bandit.lasted(rung, (100, 10)[rung])
    assert steps[1] / steps.sum() == pytest.approx(0.5, abs=0.03)


def test_others_learn_by_turns():
    bandit = Bandit(hurl.Ladder(0.5, 0.8, 1.0))
    episodes_of(bandit, (0.0, 5.0, 2.0), blocks=40)
    others = [rung for _ in range(160) for rung in bandit.learners() if rung != 1]
    assert sorted(others) == [0] * 10 + [2] * 10


def test_what_a_ladder_of_other_rungs_knows_is_not_taken_over():
    bandit = told([1.0, 2, 3, 4], [2.0, 3, 4, 5])
    other = Bandit(hurl.Ladder(0.2, 0.5, 1.0))
    other.restore(bandit.state())
    assert (other.closed, other.best) == (0, 2)


def test_episodes_that_never_end_are_warned_of():
    guidance = hurl.Guidance(lambda states: np.ones(len(states)), gamma=0.99, steps_per_iteration=2)
    states, goes_on = np.zeros((2, 1)), np.array([False, False])
    for _ in range(19):
        guidance.observe(states, states, np.array([1.0, 1.0]), goes_on, goes_on)
    with pytest.warns(
        UserWarning,
        match=r"no episode with a finite return has ended in 40 steps, .*: give the environment a time limit",
    ):
        guidance.observe(states, states, np.array([1.0, 1.0]), goes_on, goes_on)


@pytest.mark.parametrize(("cut_off", "length", "warned"), [(1, 3, "95%"), (4, 3, "20%"), (20, 3, None), (20, 8, "20%")])
def test_episodes_that_checkpoints_cut_off_are_warned_of(cut_off, length, warned):
    """Episodes of some steps, the environments reset after so many, also by way of a state that is restored."""
    guidance = hurl.Guidance(lambda states: np.ones(len(states)), gamma=0.99, steps_per_iteration=2)
    states, goes_on = np.zeros((2, 1)), np.array([False, False])
    lasted = 0
    with warnings.catch_warnings(record=True) as caught:
        for step in range(1, 22):
            lasted += 1
            guidance.observe(states, states, np.array([1.0, 1.0]), goes_on, goes_on | (lasted == length))
            lasted = lasted % length
            if step % cut_off == 0:
                lasted = 0
                guidance = guidance.start() if step % 8 == 0 else guidance
                guidance.abandon_episodes()
    expected = [] if warned is None else [f"{warned} of the steps so far were in episodes that resets cut off"]
    assert [str(warning.message).partition(",")[0] for warning in caught] == expected


def test_returns_that_are_not_finite_are_no_evidence():
    guidance = hurl.Guidance(lambda states: np.ones(len(states)), gamma=0.99, steps_per_iteration=2)
    states, ends = np.zeros((2, 1)), np.array([True, True])
    for value in (np.inf, -np.inf, np.nan, 1.0) * 10:
        guidance.observe(states, states, np.array([value, 1.0]), ends, ~ends)
    known = guidance.bandit.means[~np.isnan(guidance.bandit.means)]  # which rungs have acted is drawn
    assert len(known) > 0
    assert (known == 1.0).all()


def test_rungs_that_pay_the_same_decide_nothing():
    assert told([-200.0] * 30, [-200.0] * 30).decided is None


def test_a_rung_that_gets_better_is_noticed():
    bandit = Bandit(hurl.Ladder(0.5, 1.0))
    episodes_of(bandit, (0.0, 5.0), blocks=20)
    assert bandit.decided == 1
    episodes_of(bandit, (20.0, 5.0), blocks=20)
    assert bandit.decided == 0


def test_it_goes_on_from_its_state_draw_by_draw():
    bandit = Bandit(hurl.Ladder(0.5, 1.0))
    episodes_of(bandit, (0.0, 0.1), blocks=3)
    bandit.add(0, 1.0)
    copy = Bandit(hurl.Ladder(0.5, 1.0))
    copy.restore(json.loads(json.dumps(bandit.state())))
    first, second = ([each.choose() for _ in range(50)] for each in (bandit, copy))
    assert first == second
    assert bandit.state() == copy.state()


def test_a_guidance_without_a_schedule_has_a_ladder_and_goes_on_with_it():
    guidance = hurl.Guidance(lambda states: np.ones(len(states)), gamma=0.99, steps_per_iteration=10)
    states, ended = np.zeros((2, 1)), np.array([True, True])
    for _ in range(40):
        guidance.observe(states, states, np.array([1.0, 1.0]), ended, ~ended)
    copy = guidance.start()
    assert copy.bandit.state() == guidance.bandit.state()
    assert copy.bandit.closed == 8
    assert repr(copy).startswith("Guidance(")
    assert "Ladder(0.85001" in repr(copy)
