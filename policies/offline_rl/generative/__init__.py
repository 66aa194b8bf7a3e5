"""Trains actors that are generative models, by rewarded data: diffusion, mean flow, consistency."""
