from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo writes its warnings to MUJOCO_LOG.TXT in the current folder (Gymnasium's HalfCheetah-v4 causes one)."""
    monkeypatch.chdir(tmp_path)
