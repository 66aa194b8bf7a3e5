"""Names what a network camera and its client agree on."""

from __future__ import annotations

# Between the parts of a stream.
BOUNDARY = "frame"
# ``GET /top?depth=1``: with every picture the depth of its pixels.
DEPTH_QUERY = "depth"
