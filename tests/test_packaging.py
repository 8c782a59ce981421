"""What is installed: little by default, the rest by extras that are named where they are missing, and all files."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

import hurl
from hurl.heuristics import RandomNetwork
from tests.data.examples import random_episodes

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Modules of the extras alone, none of which an installation without extras has.
EXTRAS = "jax jaxlib flax optax sbx envpool minari h5py pydantic yaml typer matplotlib rliable arch pandas optuna"
EXTRAS += " tensorboard threadpoolctl ray d3rlpy gym gymnasium_robotics imageio_ffmpeg pygame"
WITHOUT_EXTRAS = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS.split()} else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
FIVE_LINES = """
import numpy as np, hurl
from stable_baselines3 import SAC
env = hurl.make_env("Pendulum-v1", n_envs=2)
guidance = hurl.Guidance(lambda states: states[:, 0], hurl.ConstantSchedule(0.9), gamma=0.98, steps_per_iteration=40)
model = hurl.guided(SAC)("MlpPolicy", env, guidance=guidance, gamma=0.98, learning_starts=20, device="cpu").learn(60)
print(model.guidance.steps, model.guidance.lambda_)
"""


def run(program, *arguments, python=sys.executable, **options):
    command = [str(python), "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_an_installation_without_extras_guides_and_loads_what_was_fitted(tmp_path):
    heuristic = RandomNetwork.fit(random_episodes(), gamma=0.98)
    heuristic.save(tmp_path / "h")
    states = random_episodes().states[:5]
    np.save(tmp_path / "states.npy", states)
    program = f"""{WITHOUT_EXTRAS}{FIVE_LINES}
h = hurl.load_heuristic("h", gamma=0.98)
np.save("values.npy", h(np.load("states.npy")))
h.save("again")
"""
    result = run(program, cwd=tmp_path)
    assert (result.stdout.split(), result.stderr) == (["60", "0.9"], "")
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), heuristic(states))
    assert (tmp_path / "again/README.md").read_text().startswith("---\nlibrary_name: hurl\n")


def test_what_an_installation_without_extras_can_not_do_names_the_extra(tmp_path):
    program = f"""{WITHOUT_EXTRAS}
from pathlib import Path
import numpy as np
from gymnasium.spaces import Box
import hurl, hurl.data

space = Box(-1, 1, (3,), np.float32)
lengths, ends = np.full(3, 4), np.ones(3, bool)
episodes = hurl.data.Episodes(np.zeros((15, 3)), np.zeros((12, 3)), np.zeros(12), lengths, ends, space, space, "a/b-v0")
for attempt in (
    lambda: hurl.MonteCarloHeuristic.fit(episodes, gamma=0.9),
    lambda: hurl.data.load_episodes("pendulum/random-v0"),
    lambda: hurl.make_env("Hopper-v4", backend="envpool"),
    lambda: hurl.heuristics.OfflineRLHeuristic.fit(episodes, gamma=0.9),
    lambda: hurl.rllib,
    lambda: hurl.tabular.write_chain(Path()),
    lambda: hurl.load_policy("runs/run"),
):
    try:
        attempt()
    except ImportError as error:
        print(error)
from hurl.__main__ import main
main()
"""
    result = run(program, cwd=tmp_path)
    extras = re.findall(r"pip install 'hurl-rl\[(\w+)\]'$", result.stdout, re.MULTILINE)
    assert extras == ["fast", "experiments", "fast", "offline", "rllib", "experiments", "experiments"], (
        result.stdout + result.stderr
    )
    assert result.returncode == 2
    assert re.fullmatch(r"error: the command line needs \w+: pip install 'hurl-rl\[experiments\]'\n", result.stderr)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The source distribution, and the wheel that is built from it."""
    source, made = tmp_path_factory.mktemp("source") / "clone", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "hurl", source / "hurl", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, source)
    result = run("import sys, setuptools.build_meta as build; build.build_sdist(sys.argv[1])", made, cwd=source)
    assert result.returncode == 0, result.stderr
    (sdist,) = made.glob("hurl_rl-*.tar.gz")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", made]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, sdist], check=True)
    (wheel,) = made.glob("hurl_rl-*.whl")
    return sdist, wheel


def test_the_wheel_has_every_file_of_the_package(packages):
    _, wheel = packages
    with zipfile.ZipFile(wheel) as content:
        packed = {name for name in content.namelist() if name.startswith("hurl/")}
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "hurl").rglob("*") if file.is_file()}
    assert packed == {file for file in files if "__pycache__" not in file}


def test_the_wheel_works_in_a_new_environment(packages, tmp_path, monkeypatch):
    _, wheel = packages
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    python = tmp_path / "bin/python"
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], check=True)
    # The dependencies are those of this environment, whose own hurl, an editable one, is not on the path with them.
    (site,) = tmp_path.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    result = run(f"import hurl; print(hurl.__file__)\n{FIVE_LINES}", python=python, cwd=tmp_path)
    assert result.stdout.split() == [str(site / "hurl/__init__.py"), "60", "0.9"], result.stderr
    command = [tmp_path / "bin/hurl", "presets", "show", "hopper/hurl-mc"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert yaml.safe_load(shown.stdout)["environment"]["id"] == "Hopper-v4", shown.stderr
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert version.stdout == f"hurl {hurl.__version__}\n"


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["version"], citation["license"]) == (hurl.__version__, PROJECT["license"])
