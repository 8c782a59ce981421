"""Losses of a run, which its metrics do not hold: read from the events that it wrote for TensorBoard."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from hurl.experiments.folder import RunFolder
from hurl.files import MisplacedError, read_regular
from hurl.reports.collect import Floats, Run, Variant
from hurl.reports.statistics import Percentiles, percentiles_of

# Of an algorithm with many, those that the most seeds have.
MOST_LOSSES = 8
HEADER, FOOTER = 12, 4  # of a record: its length with a checksum, and the checksum of its content


def losses_of(variant: Variant) -> dict[str, Percentiles]:
    """Return the losses of a variant, by tag: percentiles over the seeds that have them."""
    found = [read_losses(run) for run in variant.runs]
    tags = Counter(tag for losses in found for tag in losses)
    return {
        tag: percentiles_of([losses[tag] for losses in found if tag in losses])
        for tag, _ in tags.most_common(MOST_LOSSES)
    }


def read_losses(run: Run) -> Mapping[str, Floats]:
    """Return the losses of a run by tag, each with a number for each row of the metrics, NaN where there is none."""
    rows = {row.steps: place for place, row in enumerate(run.rows)}
    losses: dict[str, Floats] = {}
    for tag, step, value in _scalars(run):
        if tag.endswith("loss") and tag != "cloning/loss" and step in rows:  # cloning counts epochs, not steps
            losses.setdefault(tag, np.full(len(run.rows), np.nan))[rows[step]] = value
    return losses


def _scalars(run: Run) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of the scalars of a run; what is damaged, or no file, is as if it were not there."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]

    for file in sorted(RunFolder(run.folder).tensorboard.glob("events.out.tfevents.*")):
        try:
            for record in _records(read_regular(file)):
                event = Event.FromString(record)
                for value in event.summary.value:
                    yield value.tag, event.step, value.simple_value
        except (DecodeError, MisplacedError, OSError):
            continue


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of an event file: each has its length before it, and checksums of both."""
    place = 0
    while place + HEADER <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield content[place + HEADER : place + HEADER + length]
        place += HEADER + length + FOOTER
