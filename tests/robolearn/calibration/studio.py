"""Draws pictures of a board in front of a camera that is known."""

import cv2
import mujoco
import numpy as np

from robolearn.calibration.boards import Board
from robolearn.geometry import pose, rot_x, rot_y, rot_z
from sim.rendering.cameras import camera_pose
from sim.rendering.cameras import intrinsics as drawn_with
from sim.rendering.renderer import Renderer
from sim.rendering.renderer import View as Drawing

BOARD = Board("charuco", (8, 6), 0.03, 0.022)
SIZE = (640, 480)
WORLD = """<mujoco><visual><map znear="0.02"/>
<headlight ambient="0.9 0.9 0.9" diffuse="0 0 0" specular="0 0 0"/></visual>
<asset><texture name="t" type="2d" file="{}"/><material name="m" texture="t" texuniform="false"
 specular="0"/></asset>
<worldbody><body name="b" mocap="true"><geom type="plane" size="0.12 0.09 0.01" material="m"/>
</body>
<camera name="c" pos="0.25 0.05 0.6" xyaxes="1 0 0.05 0 0.9 0.35" fovy="42"/>
</worldbody></mujoco>"""
# Where the lying board's lower left corner is.
AT = (0.14, 0.2, 0.3)


class Studio:
    """A board that is held in front of a camera; ``T`` are poses of the board's frame."""

    def __init__(self, folder):
        made = cv2.aruco.CharucoBoard(
            BOARD.squares,
            BOARD.square_m,
            BOARD.marker_m,
            cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50),
        )
        cv2.imwrite(str(folder / "board.png"), made.generateImage((1280, 960)))
        model = mujoco.MjModel.from_xml_string(WORLD.format(folder / "board.png"))
        self.data, self.drawing = mujoco.MjData(model), Drawing("c", *SIZE)
        mujoco.mj_forward(model, self.data)
        self.K = drawn_with(model, self.drawing)
        self.T_table_camera = camera_pose(model, self.data, "c")
        self._model, self._renderer = model, Renderer(model)

    def picture(self, T_table_board):
        middle = T_table_board @ pose(None, (0.12, 0.09, 0.0))
        self.data.mocap_pos[0] = middle[:3, 3]
        mujoco.mju_mat2Quat(self.data.mocap_quat[0], middle[:3, :3].ravel())
        mujoco.mj_forward(self._model, self.data)
        return self._renderer.image(self.data, self.drawing)

    def held(self, x, y, z, tilt):
        """In front of the camera, ``z`` away, its middle ``x, y`` to the side."""
        turn = rot_x(np.pi + tilt[0]) @ rot_y(tilt[1]) @ rot_z(tilt[2])
        T = self.T_table_camera @ pose(turn, (x, y, z)) @ pose(None, (-0.12, -0.09, 0.0))
        return self.picture(T)

    def shown(self):
        """Nine pictures from which a lens is found."""
        rng = np.random.default_rng(5)
        places = [(x, y) for x in (-0.09, 0.0, 0.09) for y in (-0.06, 0.0, 0.06)]
        return [
            self.held(x, y, 0.42 + 0.1 * rng.random(), rng.uniform(-0.55, 0.55, 3))
            for x, y in places
        ]

    def lying(self):
        return self.picture(pose(rot_z(AT[2]), (AT[0], AT[1], 0.0)))

    def close(self):
        self._renderer.close()
