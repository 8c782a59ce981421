"""Studies: what is drawn, scored, pruned and resumed, with small runs of SAC on Pendulum."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import optuna
import psutil
import pytest
import yaml

from hurl.cli.tune import _load
from hurl.experiments.config import RunConfig, load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from hurl.experiments.tuning.grid import (
    Stage,
    TuningError,
    check_grid,
    check_stage,
    find_source,
    read_grid,
)
from hurl.experiments.tuning.results import best_values, rank, write_results
from hurl.experiments.tuning.scale import Scale, Timing, plan_scale
from hurl.experiments.tuning.study import Study, StudyConfig, TrialState, setting_up
from hurl.experiments.tuning.trials import run_trial
from hurl.files import lock_file
from tests.experiments.conftest import repeating

HURL = Path(sys.executable).with_name("hurl")
GAMMAS = [0.9, 0.95, 0.99]
GRID = {"gamma": GAMMAS, "algorithm.parameters.tau": [0.01, 0.1]}


@pytest.fixture
def base(small):
    """A small run without guidance."""
    return RunConfig.model_validate(small | {"guidance": None, "iterations": 2, "checkpoint_every": 1})


def begin(folder, config, grid=GRID, *, trials=2, pruning=False, stage=Stage.base):
    with setting_up(folder) as study:
        study.write(
            StudyConfig(
                stage=stage,
                source="run.yaml",
                grid=grid,
                config=config,
                prepared=config,
                scale=Scale(trials, config.iterations, pruning),
                timing=Timing(1.0, 1.0),
            )
        )
        study.add_trials()
    return study


def test_the_score_is_the_mean_return_of_an_ordinary_run(base, tmp_path):
    study = begin(tmp_path / "study", base)
    assert run_trial(study, 1) is TrialState.COMPLETE
    returns = [float(row["return_mean"]) for row in repeating(study.run_folder(1) / "metrics.csv")]
    assert len(returns) == 2
    assert study.trials[1].value == pytest.approx(np.mean(returns))
    assert RunFolder(study.run_folder(1)).read_config() == study.config_of(1)
    assert [path.name for path in (study.run_folder(1) / "checkpoints").iterdir()] == ["000002"]

    written = (study.run_folder(1) / "metrics.csv").stat().st_mtime_ns
    assert run_trial(Study(study.folder), 1) is TrialState.COMPLETE
    assert (study.run_folder(1) / "metrics.csv").stat().st_mtime_ns == written


def test_trials_are_drawn_from_the_grid_with_seeds_of_their_own(base, tmp_path):
    many = begin(tmp_path / "many", base, trials=60)
    few = begin(tmp_path / "few", base, trials=3)
    other = begin(tmp_path / "other", base.model_copy(update={"seed": 1}), trials=60)
    drawn = [trial.params for trial in many.trials]
    assert [trial.params for trial in few.trials] == drawn[:3]
    assert [trial.params for trial in other.trials] != drawn
    assert {(values["gamma"], values["algorithm.parameters.tau"]) for values in drawn} == {
        (gamma, tau) for gamma in GRID["gamma"] for tau in GRID["algorithm.parameters.tau"]
    }
    configs = [many.config_of(number) for number in range(60)]
    assert len({config.seed for config in configs} | {other.config_of(0).seed}) == 61
    assert configs[5].gamma == drawn[5]["gamma"]
    assert configs[5].algorithm.parameters["tau"] == drawn[5]["algorithm.parameters.tau"]


def test_a_study_grows_and_keeps_what_it_has(base, tmp_path):
    study = begin(tmp_path, base, trials=2)
    run_trial(study, 1)
    grown = begin(tmp_path, base, trials=4)
    assert len(grown.trials) == 4
    assert grown.trials[1].value == study.trials[1].value
    grown.begin(2)  # by a process that was killed
    assert [task.arguments[-1] for task in grown.tasks(4)] == ["2", "0", "3"]
    assert [task.arguments[-1] for task in grown.tasks(2)] == ["0"]


def test_a_trial_that_another_process_has_is_left_alone(base, tmp_path):
    study = begin(tmp_path, base)
    (tmp_path / "locks").mkdir()
    with (tmp_path / "locks" / "0000").open("w") as lock:
        assert lock_file(lock)
        assert run_trial(study, 0) is TrialState.WAITING
    assert not study.run_folder(0).exists()


@pytest.mark.parametrize(
    ("others", "outcome", "iterations"), [(0.0, TrialState.PRUNED, 2), (-1e6, TrialState.COMPLETE, 8)]
)
def test_pruning_compares_with_the_median_of_finished_trials(base, tmp_path, others, outcome, iterations):
    config = base.model_copy(update={"iterations": 8, "checkpoint_every": 2})
    study = begin(tmp_path / "study", config, trials=1, pruning=True)
    for _ in range(5):
        values = dict.fromkeys(range(1, 9), others)
        study.optuna.add_trial(optuna.trial.create_trial(value=others, intermediate_values=values))
    assert run_trial(study, 0) is outcome
    assert len(RunFolder(study.run_folder(0)).read_metrics()) == iterations

    train(study.config_of(0), study.run_folder(0))  # a pruned run can be carried on by hand
    train(study.config_of(0), tmp_path / "alone")
    assert repeating(study.run_folder(0) / "metrics.csv") == repeating(tmp_path / "alone" / "metrics.csv")


def test_a_run_that_diverges_is_a_failed_trial(base, tmp_path):
    study = begin(tmp_path, base, {"algorithm.parameters.learning_rate": [1e30]}, trials=1)
    assert run_trial(study, 0) is TrialState.FAIL
    assert "training failed after iteration" in study.trials[0].user_attrs["reason"]
    assert write_results(study) == []
    assert study.tasks(1) == []


def test_a_trial_that_a_callback_ends_counts_with_what_it_reached(base, tmp_path):
    stopping = {"stable_baselines3.common.callbacks:StopTrainingOnMaxEpisodes": {"max_episodes": 4}}  # of 30 steps
    config = base.model_copy(update={"iterations": 5, "callbacks": [stopping]})
    study = begin(tmp_path, config, trials=1)
    assert run_trial(study, 0, trust=True) is TrialState.COMPLETE
    rows = RunFolder(study.run_folder(0)).read_metrics()
    assert 0 < len(rows) < 5
    assert study.trials[0].value == pytest.approx(np.mean([row.return_mean for row in rows]))
    assert [path.name for path in (study.run_folder(0) / "checkpoints").iterdir()] == [f"{len(rows):06d}"]
    assert [one.failed for one in rank(study)] == [0]


def test_weights_that_are_no_numbers_fail_a_trial_before_it_can_be_pruned(base, tmp_path):
    """SBX would go on with them, where Stable-Baselines3 stops."""
    values = base.model_dump(mode="json") | {"iterations": 8}
    values["algorithm"] |= {"name": "sbx.SAC"}
    grid = {"algorithm.parameters.learning_rate": [1e30]}
    study = begin(tmp_path, RunConfig.model_validate(values), grid, trials=1, pruning=True)
    assert run_trial(study, 0) is TrialState.FAIL
    assert "is not finite" in study.trials[0].user_attrs["reason"]
    assert write_results(study) == []
    assert not (study.run_folder(0) / "replay").exists()


def test_results_and_what_the_second_stage_takes_from_the_first(base, small, tmp_path):
    study = begin(tmp_path / "base", base, {"gamma": [0.9, 0.95]}, trials=0)
    scores = {0.9: (-100.0, -400.0), 0.95: (-300.0, -180.0)}  # the best mean is not the best trial's
    for gamma, found in scores.items():
        for score in found:
            distribution = {"gamma": optuna.distributions.CategoricalDistribution([0.9, 0.95])}
            study.optuna.add_trial(
                optuna.trial.create_trial(value=score, params={"gamma": gamma}, distributions=distribution)
            )
    damaged = RunFolder(study.run_folder(0)).metrics_file
    damaged.parent.mkdir(parents=True)
    damaged.write_text("iteration,steps\n1,20")  # which does not hide the other trials
    ranked = write_results(study)
    assert [(found.values["gamma"], found.score) for found in ranked] == [(0.95, -240.0), (0.9, -250.0)]
    best = load_config(str(tmp_path / "base" / "best.yaml"))
    assert best == base.model_copy(update={"gamma": 0.95})
    with (tmp_path / "base" / "trials.csv").open() as file:
        assert [float(row["auc"]) for row in csv.DictReader(file)] == [-100.0, -400.0, -300.0, -180.0]
    assert (tmp_path / "base" / "scores.png").read_bytes().startswith(b"\x89PNG")

    (tmp_path / "run.yaml").write_text(yaml.safe_dump(small | {"gamma": 0.5}))
    guided = _load(str(tmp_path / "run.yaml"), Stage.guidance, tmp_path / "base", ["seed=3"])
    assert (guided.gamma, guided.seed, guided.guidance.schedule.lambda0) == (0.95, 3, 0.5)

    with pytest.raises(TuningError, match=r"tuned Pendulum-v1, and not Hopper-v4"):
        best_values(tmp_path / "base", "Hopper-v4")
    begin(tmp_path / "guidance", guided, {"guidance.schedule.lambda0": [0.9]}, stage=Stage.guidance)
    with pytest.raises(TuningError, match="study of the stage guidance: name one of the stage base"):
        best_values(tmp_path / "guidance", "Pendulum-v1")
    with pytest.raises(TuningError, match=r"no trial in .* is finished"):
        best_values(begin(tmp_path / "new", base).folder, "Pendulum-v1")


def test_pruned_trials_count_and_configurations_that_break_down_come_last(base, tmp_path):
    study = begin(tmp_path / "study", base, {"gamma": GAMMAS}, trials=30)
    trials = {gamma: [trial.number for trial in study.trials if trial.params["gamma"] == gamma] for gamma in GAMMAS}
    (lucky, pruned, *_), (steady, *_), (fast, diverging, *_) = trials.values()
    for number, score in ((lucky, 10.0), (steady, 8.0), (fast, 20.0)):
        study.optuna.tell(study.begin(number), score)
    stopped = study.begin(pruned)
    stopped.report(2.0, step=1)
    study.optuna.tell(stopped, state=TrialState.PRUNED)
    study.optuna.tell(study.begin(diverging), state=TrialState.FAIL)
    ranked = rank(study)
    assert [(one.values["gamma"], one.score) for one in ranked] == [(0.95, 8.0), (0.9, 6.0), (0.99, 20.0)]
    assert [(one.pruned, one.failed) for one in ranked] == [(0, 0), (1, 0), (0, 1)]


def test_the_lock_of_a_process_that_was_killed_holds_nobody_up(base, tmp_path):
    (tmp_path / "lock").touch()  # of the study, which is not in use either
    (tmp_path / "journal.log.lock").touch()
    started = time.monotonic()
    study = begin(tmp_path, base)
    assert len(study.trials) == 2
    assert time.monotonic() - started < 20

    with (tmp_path / "journal.log.lock").open("a") as other:
        assert lock_file(other)
        writing = threading.Thread(target=study.begin, args=(0,))
        writing.start()
        writing.join(0.5)
        assert writing.is_alive(), "one process writes at a time"
    writing.join()
    assert study.trials[0].state is TrialState.RUNNING


def test_a_damaged_journal_is_refused_and_made_again_from_the_runs(base, tmp_path):
    study = begin(tmp_path, base)
    run_trial(study, 0)
    score, content = study.trials[0].value, study.journal.read_bytes()
    for damaged in (content[:-5], content.replace(b'"op_code":4', b'"op_cod', 1)):
        assert damaged != content
        study.journal.write_bytes(damaged)
        with pytest.raises(TuningError, match=r"journal.log is damaged: remove it and repeat the command"):
            _ = Study(tmp_path).trials
    study.journal.unlink()
    again = Study(tmp_path)
    again.add_trials()
    written = (again.run_folder(0) / "metrics.csv").stat().st_mtime_ns
    assert run_trial(again, 0) is TrialState.COMPLETE
    assert again.trials[0].value == score
    assert (again.run_folder(0) / "metrics.csv").stat().st_mtime_ns == written


def test_a_finished_trial_that_is_found_again_is_not_pruned(base, tmp_path):
    study = begin(tmp_path, base.model_copy(update={"iterations": 4, "checkpoint_every": 2}), trials=1, pruning=True)
    assert run_trial(study, 0) is TrialState.COMPLETE
    study.journal.unlink()
    again = Study(tmp_path)
    again.add_trials()
    values = dict.fromkeys(range(1, 5), 0.0)  # better in every iteration
    for _ in range(5):
        again.optuna.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values=values))
    assert run_trial(again, 0) is TrialState.COMPLETE


@pytest.mark.parametrize(
    ("budget", "trials", "iterations", "pruning"),
    [
        (None, 300, 200, False),
        (1000.0, 300, 200, False),
        (40.0, 300, 200, True),
        (25.0, 300, range(100, 200), True),
        (8.0, range(100, 300), 50, True),
    ],
)
def test_a_budget_prunes_then_shortens_runs_then_takes_trials_away(budget, trials, iterations, pruning):
    timing = Timing(startup=20.0, iteration=6.0)
    scale = plan_scale(300, 200, timing, jobs=2, budget=budget)
    assert scale.trials in (trials if isinstance(trials, range) else [trials])
    assert scale.iterations in (iterations if isinstance(iterations, range) else [iterations])
    assert scale.pruning is pruning
    if budget is not None:
        assert scale.seconds(timing) <= 2 * 3600 * budget
        assert scale.seconds(timing, at_most=True) >= scale.seconds(timing)


def test_the_timing_is_of_iterations_after_the_first(base, tmp_path):
    rows = train(base, tmp_path / "run")
    steady = rows[1].seconds_collecting + rows[1].seconds_training + rows[1].seconds_evaluating
    timing = Timing.of_runs([rows], 100.0)
    assert timing.iteration == pytest.approx(steady)
    assert Scale(1, 2, pruning=False).seconds(timing) == pytest.approx(100.0)


def test_a_budget_that_is_too_little():
    with pytest.raises(TuningError, match=r"a budget of 0.1 hours is too little: 10 trials of 50 iterations"):
        plan_scale(300, 200, Timing(20.0, 6.0), jobs=1, budget=0.1)


def test_the_grids_of_the_paper_fit_its_presets():
    config = load_config("hopper/sac")
    grid = read_grid("mujoco", Stage.base)
    check_grid(grid, config)
    assert [len(choices) for choices in grid.values()] == [4, 4, 4, 3]
    grid = read_grid("mujoco", Stage.guidance)
    check_grid(grid, load_config("hopper/hurl-mc"))
    assert grid["guidance.schedule.alpha"] == [1e-5, 1.0, 1e5]
    assert len(read_grid("procgen", Stage.guidance)["guidance.schedule.lambda0"]) == 5
    assert find_source("hopper", Stage.base) == "hopper/sac"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"gama": [0.9]}, r"unknown key 'gama'; did you mean 'gamma'"),
        ({"gamma": [0.9, 1.5]}, r"gamma: input should be less than or equal to 1, got 1.5"),
        ({"algorithm.parameters.tao": [0.1]}, r"sb3.SAC has no parameter 'tao'; did you mean 'tau'"),
        ({"seed": [1]}, r"'seed' can't be in a grid"),
    ],
)
def test_a_grid_that_does_not_suit(base, grid, message):
    with pytest.raises((TuningError, ConfigurationError), match=message):
        check_grid(grid, base)


def test_what_is_made_once_is_not_in_a_grid():
    with pytest.raises(TuningError, match="'gamma' can't be in the grid, since data and heuristic are made with it"):
        check_grid({"gamma": [0.9]}, load_config("hopper/hurl-mc"))
    with pytest.raises(TuningError, match=r"'environment.options.healthy_reward' can't be in the grid"):
        check_grid({"environment.options.healthy_reward": [2.0]}, load_config("hopper/hurl-mc"))
    check_grid({"environment.n_envs": [8]}, load_config("hopper/hurl-mc"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: {gamma: []}", r"gamma must be a list of one value or more, got \[\]"),
        ("base: {gamma: 0.9}", r"gamma must be a list of one value or more, got 0.9"),
        ("base: {gamma: [[1]]}", r"a value must be a number, a text, true, false or null, got \[1\]"),
        ("guidence: {gamma: [0.9]}", r"unknown stage 'guidence'; did you mean 'guidance'"),
        ("guidance: {gamma: [0.9]}", r"has no grid for the stage base"),
        ("base: 3", r"base must hold keys of the configuration"),
    ],
)
def test_a_grid_file_that_is_none(tmp_path, text, message):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(TuningError, match=message):
        read_grid(str(tmp_path / "grid.yaml"), Stage.base)


def test_grids_of_rllibs_algorithms():
    config = load_config("procgen/ppo")
    check_grid({"algorithm.parameters.use_critic": [True, False]}, config)
    with pytest.raises(TuningError, match=r"rllib.PPO has no parameter 'use_critc'; did you mean 'use_critic'"):
        check_grid({"algorithm.parameters.use_critc": [True]}, config)
    assert config.algorithm.library.grid == "procgen"
    assert load_config("hopper/sac").algorithm.library.grid == "mujoco"


def test_a_preset_alone():
    assert find_source("hopper", Stage.base) == "hopper/sac"
    assert find_source("procgen", Stage.base) == "procgen/ppo"
    with pytest.raises(TuningError, match=r"which guidance to tune: name a variant, such as procgen/ppo-hurl$"):
        find_source("procgen", Stage.guidance)


def test_what_can_not_be_tuned(base, small, tmp_path):
    with pytest.raises(TuningError, match=r"no grid 'mujocco'; did you mean 'mujoco'"):
        read_grid("mujocco", Stage.base)
    with pytest.raises(TuningError, match="no guidance to tune"):
        check_stage(Stage.guidance, base)
    with pytest.raises(TuningError, match="the base is tuned without guidance"):
        check_stage(Stage.base, RunConfig.model_validate(small))
    with pytest.raises(TuningError, match="a run of 0 iterations"):
        check_stage(Stage.base, load_config("hopper/bc"))
    with pytest.raises(TuningError, match="name a variant, such as hopper/hurl-zero or hopper/hurl-mc"):
        find_source("hopper", Stage.guidance)
    with pytest.raises(ConfigurationError, match=r"no preset 'hoper'; did you mean"):
        _load(find_source("hoper", Stage.base), Stage.base, None, [])
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "letter.txt").write_text("dear")
    with pytest.raises(TuningError, match="holds other things than a study"), setting_up(tmp_path / "things"):
        pass
    with pytest.raises(TuningError, match="holds no study"):
        _ = Study(tmp_path / "nothing").settings


def test_a_folder_of_another_study_is_refused(base, tmp_path):
    settings = begin(tmp_path, base).settings
    same = {"stage": Stage.base, "grid": GRID, "config": base}
    settings.check_same(tmp_path, **same)
    with pytest.raises(TuningError, match=r"holds another study \(it differs in grid\)"):
        settings.check_same(tmp_path, **same | {"grid": {"gamma": [0.9]}})
    with pytest.raises(TuningError, match=r"holds another study \(it differs in gamma, seed\)"):
        settings.check_same(tmp_path, **same | {"config": base.model_copy(update={"gamma": 0.5, "seed": 1})})


def test_two_trials_at_once_killed_and_carried_on(small, tmp_path, monkeypatch):
    """The whole command: kill -9 all its processes in the middle, repeat it, and the runs are as if left alone.

    The heuristic is in a module beside the file, one of whose variants it is; the command is given elsewhere.
    """
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "leaning.py").write_text("def h(observations):\n    return 9 * observations[:, 0]\n")
    small["guidance"]["heuristic"] = "leaning:h"
    (mine / "run.yaml").write_text(yaml.safe_dump(small | {"variants": {"long": {"iterations": 40}}}))
    (tmp_path / "grid.yaml").write_text("guidance: {guidance.schedule.lambda0: [0.5, 0.7, 0.9]}")
    command = [HURL, "tune", "mine/run.yaml/long", "--stage=guidance", "--grid=grid.yaml", "--trials=2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True)
    study = Study(tmp_path / "tuning" / "run" / "long" / "guidance")
    metrics = [study.run_folder(number) / "metrics.csv" for number in range(2)]
    deadline = time.monotonic() + 180
    while not any(file.exists() for file in metrics):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    trials = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    psutil.wait_procs(trials)  # which hold their locks until they are gone
    assert "2 trials of 40 iterations" in process.communicate()[0]
    assert study.settings.source == str(mine / "run.yaml" / "long")
    states = {trial.state.name for trial in study.trials}
    assert "RUNNING" in states
    assert "COMPLETE" not in states

    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert "2/2 trials" in result.stdout
    assert load_config(str(study.folder / "best.yaml")).iterations == 40
    monkeypatch.syspath_prepend(mine)
    train(study.config_of(0), tmp_path / "alone")
    assert repeating(metrics[0]) == repeating(tmp_path / "alone" / "metrics.csv")
