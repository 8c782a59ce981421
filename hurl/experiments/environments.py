"""Which environments there are, told in a moment: what makes environments takes seconds to import."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from hurl.experiments.process import cache_folder
from hurl.files import write_whole
from hurl.names import UnknownEnvironmentError


def check_environment(env_id: str) -> None:
    """Refuse an id that neither Gymnasium nor EnvPool has.

    Those of hurl, and those that a module registers, `module:id`, are looked for where they are made.
    """
    if ":" in env_id or env_id.startswith("hurl/"):
        return
    import gymnasium

    if env_id in gymnasium.registry or env_id in (known := _envpool_ids()):
        return
    raise UnknownEnvironmentError(env_id, "auto", {*gymnasium.registry, *known})


def _envpool_ids() -> set[str]:
    """Return EnvPool's ids, kept from one process to the next: only EnvPool knows them, and takes seconds to import."""
    if "envpool" in sys.modules:
        return set(sys.modules["envpool"].list_all_envs())
    try:
        file = cache_folder() / f"envpool-{version('envpool')}.txt"
    except PackageNotFoundError:
        return set()
    if file.exists():
        return set(file.read_text("utf-8").split())
    # in a process of its own: it imports jax, which this one has not been prepared for, and nothing of this folder
    program = "import envpool; print(*envpool.list_all_envs())"
    listed = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    with suppress(OSError):  # a home that can't be written to: the next process asks EnvPool again
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, listed.stdout.encode())
    return set(listed.stdout.split())
