"""Writes every figure of the pages from the kept results, so that none is maintained by hand.

A page marks what is written for it: `<!--= NAME -->text<!--/-->`, inside a line or around lines. `figures` has the
single figures, `tables` and `plots` the blocks and pictures, `pages` writes them.
"""
