import json
import subprocess
import sys

import numpy as np
import pytest

from hurl.tabular.chain import chain_figure, chain_mdp, corridor_mdp
from hurl.tabular.chain_picture import write_chain
from hurl.tabular.solve import optimal

TABLE = {
    "good": [0.09, 0.09, 0.09, 0.4092, 0.4092, 0.4403, 0.4403, 0.4403, 0.4403, 0.4403, 0.4403],
    "bad": [0.09, 0.09, 0.3363, 0.3363, 0.3363, 0.3363, 0.3363, 0.3363, 0.4092, 0.4403, 0.4403],
    "zero": [0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.4403, 0.4403, 0.4403],
}


@pytest.mark.parametrize("name", TABLE)
def test_curves_are_those_of_figure_1(name):
    curve = chain_figure().curves[name]
    assert [lambda_ for lambda_, _ in curve] == pytest.approx(np.linspace(0, 1, 11))
    assert [value for _, value in curve] == pytest.approx(TABLE[name], abs=5e-5)


def test_values_at_the_start_are_those_of_the_text():
    figure = chain_figure()
    assert figure.optimal_value[2] == pytest.approx(0.4403, abs=5e-5)
    assert figure.heuristics["good"][2] == pytest.approx(0.0697, abs=5e-5)
    assert figure.heuristics["bad"][2] == pytest.approx(0.09)


def test_captions_rewards_to_the_letter():
    mdp = chain_mdp("caption")
    paid = {(state + 1, "<>"[action]): mdp.rewards[state, action] for state, action in np.argwhere(mdp.rewards)}
    assert paid == {(2, "<"): 0.1, (4, ">"): -0.2, (5, ">"): 0.1}
    curves = chain_figure("caption").curves
    assert curves["bad"][1][1] > curves["good"][9][1], "the opposite of what the text says"


def test_settled_rewards():
    mdp = chain_mdp()
    paid = {(state + 1, "<>"[action]): mdp.rewards[state, action] for state, action in np.argwhere(mdp.rewards)}
    assert paid == {(2, "<"): 0.1, (4, ">"): -0.1} | {(state, ">"): 0.1 for state in range(5, 10)}


def test_files(tmp_path):
    write_chain(tmp_path)
    numbers = json.loads((tmp_path / "chain.json").read_text())
    assert set(numbers) == {"optimal_value", "heuristics", "policies", "curves"}
    assert (
        len(numbers["optimal_value"]) == len(numbers["heuristics"]["good"]) == len(numbers["heuristics"]["bad"]) == 10
    )
    assert numbers["policies"] == {
        "optimal": ">>>>>>><",
        "zero, lambda 0.5": "<<<>>>>>",
        "good, lambda 0.5": "<>>>>>><",
        "bad, lambda 0.5": ">>>><<<<",
        "bad, lambda 1": ">>>>>>><",
    }
    assert numbers["curves"]["good"][5] == [0.5, pytest.approx(0.4403, abs=5e-5)]
    assert (tmp_path / "chain.png").read_bytes().startswith(b"\x89PNG")


def test_command(tmp_path):
    command = [sys.executable, "-m", "hurl", "chain", "--out", str(tmp_path / "figure"), "--rewards"]
    result = subprocess.run([*command, "caption"], capture_output=True, text=True, check=True)
    assert "0.2463" in result.stdout
    assert (tmp_path / "figure" / "chain.json").exists()
    assert subprocess.run([*command, "captoin"], capture_output=True, check=False).returncode == 2


def test_a_corridor_pays_once_at_its_end():
    values = optimal(corridor_mdp(5, slip=0.0, gamma=0.9)).values
    np.testing.assert_allclose(values, [*0.9 ** np.arange(4, -1, -1), 0.0])
    slipping = optimal(corridor_mdp(5, slip=0.2, gamma=0.9))
    assert (slipping.policy[:-1] == 1).all()
    assert (slipping.values[:-1] < values[:-1]).all()


def test_a_corridor_without_states_is_refused():
    with pytest.raises(ValueError, match="at least 1 state, got length=0"):
        corridor_mdp(0, slip=0.1, gamma=0.9)
