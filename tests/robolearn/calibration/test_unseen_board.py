"""Why a board is in none of the pictures is said, where something else is in them."""

from __future__ import annotations

import cv2
import numpy as np

from robolearn.calibration.boards import Board, BoardFinder
from robolearn.calibration.fiducials import dictionary
from robolearn.calibration.unseen_board import why_unseen

BOARD = Board("charuco", (7, 5), 0.03, 0.022, "5x5_100")


def _print(board: Board, dots: int = 40) -> np.ndarray:
    made = cv2.aruco.CharucoBoard(
        board.squares, board.square_m, board.marker_m, dictionary(board.dictionary)
    )
    grey = made.generateImage((dots * board.squares[0], dots * board.squares[1]))
    return np.repeat(grey[..., None], 3, axis=2)


def _picture(*prints: tuple[np.ndarray, int, int]) -> np.ndarray:
    picture = np.full((480, 640, 3), 170, dtype=np.uint8)
    for ink, x, y in prints:
        picture[y : y + ink.shape[0], x : x + ink.shape[1]] = ink
    return picture


def test_a_mirrored_picture_is_told() -> None:
    picture = _picture((_print(BOARD), 60, 50))
    assert BoardFinder(BOARD).find(picture) is not None
    seen = np.ascontiguousarray(picture[:, ::-1])
    assert BoardFinder(BOARD).find(seen) is None
    assert "mirror images" in why_unseen(BOARD, [seen])


def test_another_print_is_told() -> None:
    turned = Board("charuco", (5, 7), 0.03, 0.022, "5x5_100")
    assert "7 x 5 squares" in why_unseen(turned, [_picture((_print(BOARD), 60, 50))])
    other = Board("charuco", (7, 5), 0.03, 0.022, "6x6_250")
    assert "of the dictionary 5x5_100" in why_unseen(other, [_picture((_print(BOARD), 60, 50))])
    many = Board("charuco", (4, 9), 0.03, 0.022, "5x5_100")
    assert "another print's" in why_unseen(many, [_picture((_print(BOARD), 60, 50))])


def test_two_boards_of_one_print_are_told() -> None:
    small = _print(BOARD, dots=30)
    pictures = [_picture((small, 20, 20), (small, 300, 300))] * 3
    assert "two boards of one print" in why_unseen(BOARD, pictures)


def test_where_there_is_nothing_nothing_is_said() -> None:
    assert why_unseen(BOARD, [_picture()]) == ""
    assert why_unseen(Board("chessboard", (7, 5), 0.03), [_picture()]) == ""
    assert why_unseen(BOARD, []) == ""
