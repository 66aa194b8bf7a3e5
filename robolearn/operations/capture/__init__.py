"""Takes captures of cells, checks them, and calibrates cameras from them."""
