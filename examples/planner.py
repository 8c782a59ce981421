"""Heuristics from planners that know the map and not the ice, on which every fourth step goes astray: a maze."""

import matplotlib.pyplot as plt
import numpy as np
from learning_curves import arguments, save

from hurl import ConstantSchedule, TanhSchedule
from hurl.tabular import FiniteMDP, grid_values, optimal, q_learning, relaxation_values, shortest_path_values

GAMMA, ITERATIONS = 0.97, 40
MAZE = ("S..#......", ".#.#.####.", ".#...#....", ".#####.##.", ".......#..", "######.#.#", "....##.#..", ".##....##G")
CELLS = np.array([list(row) for row in MAZE])
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


def icy_maze():
    """Return the maze as an MDP: 1 for the step that reaches G, and a fourth of the steps goes anywhere."""
    walls, n_states = CELLS == "#", CELLS.size
    transitions = np.zeros((n_states, 4, n_states))
    for state, cell in enumerate(np.ndindex(CELLS.shape)):
        for action, move in enumerate(MOVES):
            target = tuple(np.clip(np.add(cell, move), 0, np.subtract(CELLS.shape, 1)))
            reached = cell if walls[target] or CELLS[cell] == "G" else target
            transitions[state, action, np.ravel_multi_index(reached, CELLS.shape)] += 0.75
            transitions[state, :, np.ravel_multi_index(reached, CELLS.shape)] += 0.25 / 4
    goal, start = (CELLS == "G").ravel(), (CELLS == "S").ravel()
    rewards = np.where(goal[:, None], 0.0, transitions[:, :, goal].sum(axis=2))
    return FiniteMDP(transitions, rewards, GAMMA, start.astype(float))


def heuristics(mdp):
    """Return h of every cell, by three planners."""
    goal = np.unravel_index(mdp.n_states - 1, CELLS.shape)
    return {
        "grid_values": grid_values(CELLS == "#", [goal], gamma=GAMMA).ravel(),  # a map is all that it needs
        "shortest_path_values": shortest_path_values(mdp, [mdp.n_states - 1]),  # the transitions of any MDP
        "relaxation_values": relaxation_values(mdp),  # its rewards too: the agent chooses where the ice takes it
    }


def learnt(mdp, h, schedule, steps):
    """Return steps, and the median value of the policies that ten runs of Q-learning find."""
    iteration = max(1, steps // ITERATIONS)
    rng = np.random.default_rng(0)
    settings = {"steps": steps, "steps_per_iteration": iteration, "horizon": 100, "exploration": 0.3, "runs": 10}
    result = q_learning(mdp, h, schedule, rng=rng, **settings)
    return result.steps, np.median(result.values, axis=1)


def main():
    """Draw the heuristics, and what Q-learning makes of the first."""
    options = arguments(__doc__, steps=20_000)
    mdp = icy_maze()
    best = optimal(mdp)
    planned = heuristics(mdp)
    figure, panels = plt.subplot_mosaic("AABB;CCDD;EEEE;EEEE", figsize=(6.4, 6.4), layout="constrained")
    for panel, (name, values) in zip("ABCD", ({"V*": best.values} | planned).items(), strict=True):
        panels[panel].imshow(np.ma.array(values.reshape(CELLS.shape), mask=CELLS == "#"), vmin=0, vmax=1)
        panels[panel].set(title=name, xticks=[], yticks=[])
    axes = panels["E"]
    rising = TanhSchedule(0.5, iterations=ITERATIONS)
    for name, h, schedule in (
        ("grid_values, λ from 0.5 to 1", planned["grid_values"], rising),
        ("no heuristic", np.zeros(mdp.n_states), ConstantSchedule(1.0)),
    ):
        steps, values = learnt(mdp, h, schedule, options.steps)
        print(f"{name}: value {values[-1]:.2f} at the end")
        axes.plot(steps, values, label=name)
    axes.axhline(best.values @ mdp.initial, color="grey", linestyle=":", label="V*")
    axes.set(xlabel="environment steps", ylabel="value of the policy found")
    axes.legend()
    save(figure, options.out / "planner.png")


if __name__ == "__main__":
    main()
