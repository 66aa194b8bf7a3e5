"""Learns on another machine than the one that drives: episodes there, weights back, over one
authenticated channel.
"""
