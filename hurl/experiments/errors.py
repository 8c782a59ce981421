"""What is wrong with what a user wrote."""

__all__ = ["ConfigurationError"]


class ConfigurationError(ValueError):
    """A configuration that can't be run, with what to change."""
