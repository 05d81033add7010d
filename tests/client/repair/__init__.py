"""What somebody did to the keys by hand: found, explained and mended."""
