"""What is wrong with what a user wrote, or with what a run did."""


class ConfigurationError(ValueError):
    """A configuration that can't be run, with what to change."""


class RunFolderError(ValueError):
    """A run folder that can't be used, with what to do about it."""


class TrainingFailedError(RuntimeError):
    """The algorithm broke down, as it does where its weights diverge."""


class TrainingEndedError(RuntimeError):
    """A callback has ended the run before its last iteration."""
