"""Tests run as `hurl train` does: one thread, and compiled code kept from one test to the next."""

from hurl.experiments.process import prepare_process

prepare_process(threads=1)
