"""Drawing: images that are painted stroke by stroke from noise (DRAW)."""
