"""Runs of each library's algorithms: `base.py` says what a run needs of them, the others give it."""
