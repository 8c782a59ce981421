"""The metrics of a run: each column declared once, as a field of `Row`, and how all are written, read and shown."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from hurl.experiments.errors import RunFolderError
from hurl.files import read_regular, write_whole

PERCENTILES = (25, 50, 75)


@dataclass(frozen=True)
class Chart:
    """How a report draws a column: as a line over the iterations, the median over seeds, in a band.

    :param label: of its vertical axis
    :param picture: the file that it is in, side by side with the others that name it
    :param columns: the line and, where it has a band, its limits; without them, percentiles over seeds are drawn
    :param is_wide: whether the page gives it a whole line
    """

    name: str
    title: str
    label: str
    picture: str
    columns: tuple[str, ...] = ()
    is_wide: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The columns of a curve that are drawn: the line, and the limits of its band."""
        low, middle, high = (f"{self.name}_{percentile}" for percentile in PERCENTILES)
        return self.columns or (middle, low, high)


def show_return(value: float) -> str:
    """Write a return: with one decimal, and small ones, of tasks that pay 0 or 1, with three digits."""
    return f"{value:.1f}" if abs(value) >= 10.0 else f"{value:.3g}"


@dataclass(frozen=True)
class Column:
    """Where a column is shown: by label and form in the terminal, by tag in TensorBoard, by chart in a report.

    :param form: as Python's `format` takes it; none writes it as a return, see `show_return`
    :param of_training: whether it says nothing of iteration 0, the cloned policy
    """

    label: str = ""
    form: str = ""
    tag: str = ""
    chart: Chart | None = None
    of_training: bool = False


RETURN = Chart("return", "Evaluation return: median, 25th to 75th percentile over seeds", "return", "return", (), True)
SUCCESS = Chart("success_rate", "Success rate of evaluation episodes: median over seeds", "success rate", "success")
TRAINING_RETURN = Chart(
    "training_return", "Return of training episodes: median, 25th to 75th percentile over seeds", "return", "training"
)
LAMBDA = Chart("lambda", "λ, the mixing coefficient; of a ladder, its best rung", "λ", "guidance", ("lambda",))
DISCOUNT = Chart("discount", "Discount λγ of the reshaped problem", "λγ", "guidance", ("discount",))
GUIDED_SHARE = Chart("guided_share", "Ladder: share of steps below λ = 1", "share", "ladder", ("guided_share",))
GUIDED_RETURN = Chart(
    "guided_return", "Ladder: return on the best rung below λ = 1", "return", "ladder", ("guided_return",)
)
BASE_RETURN = Chart("base_return", "Ladder: return on the rung λ = 1", "return", "ladder", ("base_return",))
HEURISTIC = Chart("h", "Heuristic h: mean, minimum to maximum", "h", "guidance", ("h_mean", "h_min", "h_max"))


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one iteration gave: a line of `metrics.csv`.

    A column with a default may be missing from the file of an older run.
    """

    iteration: int
    steps: int
    return_mean: Annotated[float, Column("return", tag="evaluation/return_mean", chart=RETURN)]
    return_std: Annotated[float, Column(tag="evaluation/return_std")]
    return_min: float
    return_max: float
    episode_length: Annotated[float, Column(tag="evaluation/episode_length")]
    success_rate: Annotated[float, Column("success", ".0%", tag="evaluation/success_rate", chart=SUCCESS)] = np.nan
    training_return: Annotated[float, Column(tag="training/return", chart=TRAINING_RETURN)] = np.nan
    lambda_: Annotated[float, Column("λ", ".3f", "guidance/lambda", LAMBDA, of_training=True)]
    discount: Annotated[float, Column(tag="guidance/discount", chart=DISCOUNT, of_training=True)]
    h_mean: Annotated[float, Column(tag="guidance/h_mean", chart=HEURISTIC)]
    h_min: Annotated[float, Column(tag="guidance/h_min")]
    h_max: Annotated[float, Column(tag="guidance/h_max")]
    guided_share: Annotated[float, Column("guided steps", ".0%", chart=GUIDED_SHARE)] = np.nan
    guided_return: Annotated[float, Column(chart=GUIDED_RETURN)] = np.nan
    base_return: Annotated[float, Column(chart=BASE_RETURN)] = np.nan
    seconds_collecting: float
    seconds_training: float
    seconds_evaluating: float

    @property
    def seconds(self) -> float:
        """What the iteration took in all."""
        return self.seconds_collecting + self.seconds_training + self.seconds_evaluating

    def scalars(self) -> dict[str, float]:
        """Return what TensorBoard is told, by tag."""
        return {column.tag: value for column, value in self._said() if column.tag and np.isfinite(value)}

    def texts(self) -> dict[str, str]:
        """Return what the terminal shows, by label; what was not measured is left out."""
        said = {
            column.label: format(value, column.form) if column.form else show_return(value)
            for column, value in self._said()
            if column.label and np.isfinite(value)
        }
        if np.isfinite(self.guided_share):  # of a ladder: which acts is drawn, and λ is that of the best rung
            said = {"best λ" if label == "λ" else label: text for label, text in said.items()}
        return said

    def _said(self) -> Iterator[tuple[Column, float]]:
        for column, value in zip(COLUMNS.values(), vars(self).values(), strict=True):
            if self.iteration > 0 or not column.of_training:
                yield column, value


# By the names of the file: the fields', `lambda` without the underscore that Python asks for.
FIELDS = {field.name.rstrip("_"): field for field in fields(Row)}
TYPES = {name.rstrip("_"): hint for name, hint in get_type_hints(Row).items()}
COLUMNS = {
    name.rstrip("_"): next(iter(get_args(hint)[1:]), Column())
    for name, hint in get_type_hints(Row, include_extras=True).items()
}
LABELS = [column.label for column in COLUMNS.values() if column.label]
# By the column that each is of.
CHARTS = {name: column.chart for name, column in COLUMNS.items() if column.chart is not None}


class DamagedError(RunFolderError):
    """A metrics file that can't be read from some line on, with its number."""

    def __init__(self, file: Path, line: int, text: str) -> None:
        where = "the heading" if line == 1 else f"the line of iteration {text.partition(',')[0]!r}"
        super().__init__(f"{file} is damaged in {where}: remove that line and those after it")
        self.line = line


def read_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a metrics file up to its end or to the first damaged line, which is an error."""
    heading, *lines = _read_lines(file)
    names = heading.split(",")
    expected = [name for name, field in FIELDS.items() if name in names or field.default is MISSING]
    if names != expected and (heading or lines):  # a file that was emptied holds no rows
        raise DamagedError(file, 1, heading)
    following = {0, 1}
    for number, line in enumerate(lines[:-1], start=2):
        try:
            cells = zip(names, line.split(","), strict=True)
            row = Row(**{FIELDS[name].name: _parse(name, cell) for name, cell in cells})
        except ValueError:
            row = None
        if row is None or row.iteration not in following:
            raise DamagedError(file, number, line)
        following = {row.iteration + 1}
        yield row
    # A line is written with its end: one without it was cut, even where what is left looks like numbers.
    if lines and lines[-1]:
        raise DamagedError(file, len(lines) + 1, lines[-1])


def digest_of_rows(file: Path, last: int) -> str:
    """Return the hash of the rows of a metrics file up to an iteration, as they are written.

    Cells without a number are left out, so that a column which a later version adds to them changes nothing.
    """
    digest = hashlib.sha256()
    heading, *lines = _read_lines(file) if file.exists() else [""]
    for line in lines:
        cells = zip(heading.split(","), line.split(","), strict=False)
        digest.update("".join(f"{name}={cell}," for name, cell in cells if cell != "nan").encode() + b"\n")
        if line.startswith(f"{last},"):
            break
    return digest.hexdigest()


def _read_lines(file: Path) -> list[str]:
    return read_regular(file).decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")


def _parse(name: str, cell: str) -> Any:
    """Return the number of a cell, NaN as the one object by which rows that have none there are equal."""
    number = TYPES[name](cell)
    return np.nan if np.isnan(number) else number


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write a metrics file, whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    # As the types that they are read as, so that rows which were read are written as they were.
    types = TYPES.values()
    writer.writerows([kind(value) for kind, value in zip(types, vars(row).values(), strict=True)] for row in rows)
    write_whole(file, text.getvalue().encode())


def auc(rows: Sequence[Row], iterations: int | None = None) -> float:
    """Return the area under the curve, AUC = 1/N Σ_{n=1..N} return_n; that of a cloned policy is its return.

    :param iterations: N; None means all that there are
    """
    returns = [row.return_mean for row in rows if row.iteration > 0][:iterations]
    return float(np.mean(returns or rows[0].return_mean))
