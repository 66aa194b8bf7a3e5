"""Polls devices whose SDK only answers when asked, on a thread of its own."""
