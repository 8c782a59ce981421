from hypothesis import given
from hypothesis import strategies as st

from hurl.pieces import pieces


@given(count=st.integers(0, 50), size=st.integers(1, 20))
def test_every_row_is_in_one_piece_and_only_the_last_is_smaller(count, size):
    divided = [list(range(count))[piece] for piece in pieces(count, size)]
    assert [row for piece in divided for row in piece] == list(range(count))
    assert all(len(piece) == size for piece in divided[:-1])
    assert all(0 < len(piece) <= size for piece in divided[-1:])
