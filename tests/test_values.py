import numpy as np
import pytest

import hurl
from hurl.values import check_argument, check_value, number, whole

SHARE = number(0, 1, below=True)


@pytest.mark.parametrize("value", [1, 10**9, np.int64(3), np.uint8(1)])
def test_a_count_is_a_whole_number_of_python_or_numpy(value):
    check_argument("epochs", value, whole(1))


@pytest.mark.parametrize("value", [0, True, np.True_, 1.0, np.float32(2.0), float("inf"), "1", None, 10**10])
def test_nothing_else_is_a_count(value):
    with pytest.raises(ValueError, match=r"epochs must be a whole number from 1 to 1,000,000,000, got "):
        check_argument("epochs", value, whole(1))


@pytest.mark.parametrize("value", [0, 0.0, 0.999, np.float32(0.5)])
def test_a_share_may_be_nothing(value):
    check_argument("tolerance", value, SHARE)


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, True, False, float("nan"), "0.5"])
def test_a_share_may_not_be_all(value):
    with pytest.raises(hurl.HeuristicError, match=r"tolerance must be a number from 0 to below 1, got "):
        check_argument("tolerance", value, SHARE, hurl.HeuristicError)


def test_files_hold_no_numbers_of_numpy():
    with pytest.raises(ValueError, match="epochs must be a whole number"):
        check_value("epochs", np.int64(3), whole(1))
