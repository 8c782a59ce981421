"""What other packages tell at each start and is of no use here."""

from __future__ import annotations

from contextlib import suppress


def silence_notices() -> None:
    """Keep notices from being printed; called before what prints them is imported.

    Gym, which comes with d3rlpy and which Stable-Baselines3 looks for, says that Gymnasium has replaced it;
    Gymnasium-Robotics, that the rewards of tasks with a hand have changed.
    """
    with suppress(ModuleNotFoundError):
        from gym_notices import notices

        notices.notices.clear()
    with suppress(ModuleNotFoundError):
        from farama_notifications import notifications

        notifications.pop("gymnasium_robotics", None)
