"""Writes every figure of the pages from the stored results, so that none is maintained by hand.

A page marks the text that is written for it: `<!--= NAME -->text<!--/-->`, inside a line or around lines. `figures` has
the single figures, `tables` and `plots` the blocks and pictures, `pages` writes them.
"""
