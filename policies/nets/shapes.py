"""Names the shapes that policies hand to each other, checked when tests run.

b: rows, h: horizon, a: numbers of an action, n_obs: observations, c: numbers of a context
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

Scalar = Float[Tensor, ""]
# One number per row: a time, a level of noise, a value.
Rows = Float[Tensor, " b"]
RowFlags = Bool[Tensor, " b"]
# The same, to be multiplied with what has one or two more dimensions.
RowsOne = Float[Tensor, "b 1"]
RowsOneOne = Float[Tensor, "b 1 1"]
# Times of a sampler's steps.
StepTimes = Float[Tensor, " steps"]
# Actions of one row, in SI units or normalised.
Chunks = Float[Tensor, "b h a"]
# What a sampler goes through on its way to a chunk, noise first; of its steps, each number or all.
Chains = Float[Tensor, "b states h a"]
ChainDensities = Float[Tensor, "b steps h a"]
StepRows = Float[Tensor, "b steps"]
# Of each step's density, or of all of them together.
RatioRows = Float[Tensor, "b ratios"]
RatioWeights = Float[Tensor, " ratios"]
# Several to choose from.
Candidates = Float[Tensor, "b k h a"]
# Of several that are sampled at once: chunks, and what they are worth.
Particles = Float[Tensor, "b m h a"]
ParticleWorth = Float[Tensor, "b m"]
# What was made of some of them.
MadeCandidates = Float[Tensor, "b made h a"]
FlatCandidates = Float[Tensor, "b k g"]
SomeCandidates = Float[Tensor, "b some g"]
# What edits of them are drawn by, and made of.
EditNoise = Float[Tensor, "b k numbers"]
# Cosines over the steps of a chunk.
Waves = Float[Tensor, "cosines steps"]
Count = Int[Tensor, ""]
CandidateRows = Float[Tensor, "b k"]
CandidateFlags = Bool[Tensor, "b k"]
CandidateIndex = Int[Tensor, "b k"]
# Of samples of every row, one after the other: what each takes of noise.
SampleNoise = Float[Tensor, "samples steps g"]
# Which of them.
RowIndex = Int[Tensor, " b"]
# What a network is shown of a chunk, with marks or parts of its history.
MarkedChunks = Float[Tensor, "b h i"]
# Which actions of a chunk are meant.
ChunkMask = Bool[Tensor, "b h 1"]
ChunkWeights = Float[Tensor, "b h 1"]
# Standard normal, as many arrays as a chunk takes.
Noise = Float[Tensor, "b draws h a"]
# The same, chosen for several chunks of every row that take one array each.
GivenNoise = Float32[NDArray[np.float32], "b n h a"]
CandidateNoise = Float[Tensor, "b k draws h a"]
# Noise that stands for one way of doing things each.
Codes = Float[Tensor, "codes h a"]
Variants = Float[Tensor, "variants b h a"]
# What is needed of the observations.
Context = Float[Tensor, "b c"]
AnyContext = Float[Tensor, "b ..."]
Features = Float[Tensor, "b f"]
# Of several chunks at every row.
ManyFeatures = Float[Tensor, "rows f"]
ManyChunks = Float[Tensor, "rows g"]
ChunkFeatures = Float[Tensor, "b g"]
# Of one flat chunk; of a gripper, those that are chosen among.
OneChunk = Float[Tensor, "1 g"]
Widths = Float[Tensor, " widths"]
Hidden = Float[Tensor, "b w"]
Latents = Float[Tensor, "b latent"]
Tokens = Float[Tensor, "b tokens f"]
Marks = Float[Tensor, "b m"]
MarksHistory = Float[Tensor, "b n_obs m"]
StepFeatures = Float[Tensor, "steps f"]
PartRows = Float[Tensor, "b parts"]
# Of the components of a mixture.
ComponentRows = Float[Tensor, "b k"]
ComponentChunks = Float[Tensor, "b k h a"]
# Numbers of a signal or its features, whatever comes before; scale and offset of each.
LastFeatures = Float[Tensor, "... f"]
Scales = Float[Tensor, " s"]
# A layer's input, and what is one for all of it.
LayerInput = Float[Tensor, "... w"]
# What every member of an ensemble says of every row.
MemberRows = Float[Tensor, "members b"]
MemberIndex = Int[Tensor, " members"]
MemberFeatures = Float[Tensor, "members b w"]
MemberCandidates = Float[Tensor, "members b k"]
# One number per beginning of a chunk.
Prefixes = Float[Tensor, "b h"]
MemberPrefixes = Float[Tensor, "members b h"]
MemberNumbers = Float[Tensor, "members b n"]
# By zoom and number of a chunk: which bin it is in, and what was drawn to choose one.
BinChoices = Int[Tensor, "b zooms g"]
BinDraws = Float[Tensor, "b zooms g"]
# The same choices one after the other: their bins, the middles of all numbers' intervals before
# each, what every member says of the bins of each and of the one that was chosen.
ChoicePicks = Int[Tensor, "b choices"]
ChoiceMiddles = Float[Tensor, "b choices g"]
ChoiceBins = Float[Tensor, "members b choices bins"]
MemberChoices = Float[Tensor, "members b choices"]
# A network's last layer with outputs of its own for each choice.
ChoiceWeights = Float[Tensor, "members w choices bins"]
ChoiceBiases = Float[Tensor, "members 1 choices bins"]
# Shares of places on the line of returns, and values that belong to them.
MemberAtoms = Float[Tensor, "members b atoms"]
AtomRows = Float[Tensor, "b atoms"]
Atoms = Float[Tensor, " atoms"]
AnyShape = Float[Tensor, "*shape"]
# Rows of anything.
BatchNumbers = Float[Tensor, "b ..."]
