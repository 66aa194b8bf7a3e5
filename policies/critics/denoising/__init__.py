"""Practises a sampler's own steps: chains of Gaussians, and policy gradients over them."""
