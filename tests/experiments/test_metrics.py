"""The table of metrics: each column is declared once, and all that shows it follows."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from hurl.experiments import metrics
from hurl.experiments.metrics import COLUMNS, Row, auc, digest_of_rows, read_rows, show_return, write_rows
from hurl.experiments.run import evaluate
from tests.reports.conftest import row

RESULTS = Path(__file__).parents[2] / "results"
# A column more, as a contributor would declare it.
ENTROPY = """    entropy: Annotated[float, Column("entropy", ".2f", "training/entropy", ENTROPY)] = np.nan
"""
# What shows it, in a process whose table has that column.
PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from hurl.experiments import metrics

source, table, folder = Path(metrics.__file__).read_text("utf-8"), sys.argv[1], Path(sys.argv[2])
chart = 'ENTROPY = Chart("entropy", "Entropy of the policy", "nats", "entropy", ("entropy",))'
first = "@dataclass(frozen=True, kw_only=True)\\nclass Row:"
source = source.replace(first, f"{chart}\\n\\n\\n{first}").replace("    lambda_: Ann", f"{table}    lambda_: Ann")
exec(compile(source, metrics.__file__, "exec"), vars(metrics))

from stable_baselines3.common.logger import configure
from hurl.cli.progress import CampaignTable
from hurl.experiments.campaign import Campaign
from hurl.experiments.trainers.rllib import RLlibTrainer
from hurl.experiments.trainers.sb3 import SB3Trainer
from hurl.reports import collect_runs, compute_report, write_report
from tests.reports.conftest import row, run_writer
from dataclasses import replace
from types import SimpleNamespace
from torch.utils.tensorboard import SummaryWriter

run = run_writer(folder)("sac/seed-0", [1.0, 2.0])
rows = [replace(row(n, 1.0 * n), entropy=n / 4) for n in (1, 2)]
metrics.write_rows(run / "metrics.csv", rows)
write_report(compute_report(collect_runs([folder])), folder / "report")
events = SummaryWriter(str(folder / "rllib"))
RLlibTrainer.log(SimpleNamespace(events=events), rows[0])
events.close()
logger = configure(str(folder / "sb3"), ["tensorboard"])
SB3Trainer.log(SimpleNamespace(model=SimpleNamespace(logger=logger, dump_logs=lambda: logger.dump(1))), rows[0])
logger.close()
print([column.header for column in CampaignTable(Campaign(folder))._table({}).columns])
print([row.entropy for row in metrics.read_rows(run / "metrics.csv")])
"""


def test_a_column_that_is_declared_is_written_read_shown_and_drawn(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    command = [sys.executable, "-c", PROGRAM, ENTROPY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0, done.stderr
    headings, values = done.stdout.splitlines()[-2:]
    shown = ["return", "success", "entropy", "λ", "guided steps"]
    assert headings == str(["step", "", "iteration", *shown, "time left"])
    assert values == "[0.25, 0.5]"
    assert (tmp_path / "sac/seed-0/metrics.csv").read_text().splitlines()[0].split(",")[9:11] == ["entropy", "lambda"]
    for library in ("rllib", "sb3"):
        events = EventAccumulator(str(tmp_path / library)).Reload()
        assert [event.value for event in events.Scalars("training/entropy")] == [0.25]
    page = (tmp_path / "report/report.html").read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["charts"]["entropy"]["label"] == "nats"
    assert data["environments"][0]["variants"][0]["y"]["entropy"] == {"middle": [0.25, 0.5]}
    assert "Entropy of the policy" in page
    assert (tmp_path / "report/hopper-v4-entropy.svg").is_file()
    assert ",entropy," in (tmp_path / "report/hopper-v4-curves.csv").read_text().splitlines()[0]


def test_rows_are_read_as_they_were_written(tmp_path):
    ladder = {"guided_share": 0.5, "guided_return": 1 / 3, "base_return": -1.0}
    rows = [replace(row(n, n / 3, h=0.1, training=-1e-7), **ladder) for n in (0, 1, 2)]
    write_rows(tmp_path / "metrics.csv", rows)
    assert list(read_rows(tmp_path / "metrics.csv")) == rows


def test_every_column_of_a_chart_is_one_of_the_table():
    drawn = [column for chart in metrics.CHARTS.values() for column in chart.columns]
    assert set(drawn) <= COLUMNS.keys()
    names = [column.tag for column in COLUMNS.values() if column.tag]
    assert len(set(names)) == len(names)


def test_tensorboard_and_the_terminal_say_nothing_of_what_is_not_there():
    cloned, trained = row(0, 12.34), row(1, 12.34, h=1.0, training=3.0)
    evaluation = {"evaluation/return_mean": 12.34, "evaluation/return_std": 1.0, "evaluation/episode_length": 50.0}
    guidance = {"guidance/lambda": 0.9, "guidance/discount": 0.45}
    assert cloned.scalars() == evaluation
    assert row(1, 12.34).scalars() == evaluation | guidance
    h = {"guidance/h_mean": 1.0, "guidance/h_min": -1.0, "guidance/h_max": 4.0}
    assert trained.scalars() == evaluation | guidance | h | {"training/return": 3.0}
    assert cloned.texts() == {"return": "12.3"}
    assert trained.texts() == {"return": "12.3", "λ": "0.900"}
    laddered = replace(trained, guided_share=0.5)
    assert laddered.texts() == {"return": "12.3", "best λ": "0.900", "guided steps": "50%"}


def test_files_from_before_a_column_was_there_are_read():
    files = sorted(RESULTS.rglob("metrics.csv"))
    before = [file for file in files if "training_return" not in file.read_text().partition("\n")[0]]
    assert before
    for file in files:
        rows = list(read_rows(file))
        assert len(rows) == len(file.read_text().splitlines()) - 1
        assert all(np.isnan(row.training_return) for row in rows) == (file in before)
        assert np.isfinite([row.return_mean + row.lambda_ + row.seconds for row in rows]).all()


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("return_std,", "", "the heading"),  # a column that was there from the beginning
        ("return_std,return_min", "return_min,return_std", "the heading"),
        ("iteration,", "iteration,colour,", "the heading"),
        ("\n2,2000,", "\n2,", "the line of iteration '2'"),
        ("\n2,2000,", "\n2,2000,0,", "the line of iteration '2'"),
        ("\n2,2000,", "\n2,many,", "the line of iteration '2'"),
        ("\n2,2000,", "\n3,2000,", "the line of iteration '3'"),
        ("\n1,1000,", "\n2,1000,", "the line of iteration '2'"),
        ("\n2,2000,", "\n\n2,2000,", "the line of iteration ''"),
    ],
)
def test_what_is_damaged_is_named(old, new, where, tmp_path):
    file = tmp_path / "metrics.csv"
    write_rows(file, [row(1, 1.0), row(2, 2.0)])
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(metrics.DamagedError, match=f"is damaged in {where}: remove that line and those after"):
        list(read_rows(file))


def test_a_file_that_was_emptied_holds_no_rows(tmp_path):
    (tmp_path / "metrics.csv").touch()
    assert list(read_rows(tmp_path / "metrics.csv")) == []


def test_the_area_under_the_curve_is_the_mean_return_of_the_iterations_that_train():
    rows: list[Row] = [row(n, value) for n, value in enumerate([100.0, 1.0, 2.0, 6.0])]
    assert auc(rows) == 3.0
    assert auc(rows, 2) == 1.5
    assert auc(rows[:1]) == 100.0


def test_rows_that_were_read_are_written_as_they_were(tmp_path):
    rows = [replace(row(1, 3), return_mean=np.float64(0.1), return_min=2, h_mean=np.float32(0.1)), row(2, float("inf"))]
    write_rows(tmp_path / "first.csv", rows)
    write_rows(tmp_path / "second.csv", list(read_rows(tmp_path / "first.csv")))
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()


def test_the_hash_of_rows_is_that_of_their_cells_up_to_an_iteration(tmp_path):
    rows = [row(number, number / 3) for number in range(1, 13)]
    write_rows(tmp_path / "whole.csv", rows)
    write_rows(tmp_path / "begun.csv", rows[:10])
    digest = digest_of_rows(tmp_path / "whole.csv", 10)
    assert digest_of_rows(tmp_path / "begun.csv", 10) == digest
    assert digest_of_rows(tmp_path / "whole.csv", 11) != digest
    assert digest_of_rows(tmp_path / "whole.csv", 1) != digest
    write_rows(tmp_path / "other.csv", [replace(rows[0], seconds_training=2.5), *rows[1:]])
    assert digest_of_rows(tmp_path / "other.csv", 10) != digest


@pytest.mark.parametrize(
    ("info", "rate"),
    [
        ({}, np.nan),
        ({"is_success": [True, False]}, np.nan),
        ({"is_success": True}, 1.0),
        ({"success": np.bool_(0)}, 0.0),
    ],
)
def test_successes_are_counted_where_the_environment_tells_of_them(info, rate):
    """An episode of two steps: what counts is what `info` says at its end."""

    class Task(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            told = info if self.steps == 2 else dict.fromkeys(info, self.steps == 1)
            return np.zeros(1, np.float32), 1.0, self.steps == 2, False, told

    class Still:
        def predict(self, observations, state=None, episode_start=None, deterministic=False):
            return np.zeros(len(observations), int), state

    result = evaluate(Still(), DummyVecEnv([lambda: Monitor(Task())] * 2), 4)
    assert len(result.returns) == 4
    np.testing.assert_equal(result.summary()["success_rate"], rate)


@pytest.mark.parametrize(
    ("value", "text"), [(2437.52, "2437.5"), (-19.44, "-19.4"), (0.15, "0.15"), (0.0, "0"), (-0.0321, "-0.0321")]
)
def test_small_returns_are_shown_by_their_digits(value, text):
    assert show_return(value) == text
